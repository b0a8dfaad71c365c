/* SPDX-License-Identifier: Apache-2.0 */
/* What a node has, and how much room: features and capacities, the same for all files of a firmware.
 *
 * `genus c generate --node` writes this file with what the tables need. Each may also be an option
 * of the compiler (-DGENUS_EVENTS=12), for all files, those of the program among them. */
#ifndef GENUS_SETTINGS_H
#define GENUS_SETTINGS_H

/* -- features: 1, or 0 if they are left out ---------------------------------------------------- */

#ifndef GENUS_WITH_CALENDAR
#define GENUS_WITH_CALENDAR 1 /* hard channels, and global time */
#endif
#ifndef GENUS_WITH_SEGMENTS
#define GENUS_WITH_SEGMENTS 1 /* events in several frames */
#endif
#ifndef GENUS_WITH_LATE
#define GENUS_WITH_LATE 1 /* questions for classes that the firmware does not know */
#endif

/* -- the bus ----------------------------------------------------------------------------------- */

#ifndef GENUS_DATA_BYTES
#define GENUS_DATA_BYTES 8U /* the most data of an event's frame: 8, or 64 with CAN FD */
#endif

/* -- what the tables need ---------------------------------------------------------------------- */

#ifndef GENUS_CHANNELS
#define GENUS_CHANNELS 4U /* that the node publishes */
#endif
#ifndef GENUS_SUBJECTS
#define GENUS_SUBJECTS 4U /* types that it subscribes to */
#endif
#ifndef GENUS_SLOTS
#define GENUS_SLOTS 4U /* of the calendar that it sends or receives in */
#endif
#ifndef GENUS_HARD_BYTES
#define GENUS_HARD_BYTES 16U /* the longest payload of a hard event */
#endif
#ifndef GENUS_EVENT_BYTES
#define GENUS_EVENT_BYTES 64U /* the longest payload of others, sent or received */
#endif
#ifndef GENUS_ANSWER_BYTES
#define GENUS_ANSWER_BYTES 64U /* the longest answer about a late class, with 5 bytes around it */
#endif
#ifndef GENUS_LATE_BYTES
#define GENUS_LATE_BYTES 8U /* of the event that waits for its class; 0: it is dropped */
#endif

/* -- what the traffic needs -------------------------------------------------------------------- */

#ifndef GENUS_EVENTS
#define GENUS_EVENTS 6U /* soft and other events that wait */
#endif
#ifndef GENUS_PUBLISHERS
#define GENUS_PUBLISHERS 8U /* pairs of a node and an event tag that it receives from */
#endif
#ifndef GENUS_TRANSFERS
#define GENUS_TRANSFERS 2U /* events in several frames that are received at once */
#endif
#ifndef GENUS_QUESTIONS
#define GENUS_QUESTIONS 2U /* late classes that are asked for at once */
#endif
#ifndef GENUS_CLOCK_SAMPLES
#define GENUS_CLOCK_SAMPLES 8U /* of the master's clock, at least 2, from the oldest to the newest */
#endif
#ifndef GENUS_CLOCK_MASTERS
#define GENUS_CLOCK_MASTERS 3U /* senders of SYNC that are remembered */
#endif
#ifndef GENUS_CLOCK_FORMERS
#define GENUS_CLOCK_FORMERS 2U /* former masters whose time other nodes may still use */
#endif

#endif
