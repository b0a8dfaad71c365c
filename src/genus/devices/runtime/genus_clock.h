/* SPDX-License-Identifier: Apache-2.0 */
/* Global time at a node that follows the time service (docs/wire.md), with a bound on its
 * error.
 *
 * It is the clock model of the Python node in integer arithmetic, bit for bit: the same lines,
 * bounds, hold-over and hand-over. It never becomes master: a bus needs at least one other node
 * that may be. It thins out its samples if GENUS_CLOCK_SAMPLES are fewer than half a second of SYNC
 * periods; the bound allows for that. Local times are readings of the node's clock, from 0 up to
 * 2^60 ns; global times outside -2^61..2^62 ns (years 1897 to 2116) are counted as malformed. */
#ifndef GENUS_CLOCK_H
#define GENUS_CLOCK_H

#include "genus_frame.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GENUS_CLOCK_CONFIRMATIONS 3U /* consistent samples that overrule the known time */
#define GENUS_UNBOUNDED ((genus_time)1 << 62)

/* What is assumed of the clocks of a bus; the same at all nodes. */
typedef struct {
    genus_time period_ns; /* of SYNC */
    uint16_t drift_ppm;
    uint16_t wander_ppm;
    uint32_t granularity_ns;
    uint32_t bit_ns;
} genus_clock_settings;

typedef struct {
    genus_time local;
    genus_time global;
} genus_sample;

/* Global time as a function of local time. */
typedef struct {
    genus_time local;
    genus_time global;
    int32_t rate_ppb;
} genus_line;

/* A line, and how fast its error grows. */
typedef struct {
    genus_line line;
    genus_time error_ns;
    genus_time stable_until;
    int32_t growth_ppb;
    int32_t later_ppb;
} genus_estimate;

typedef struct {
    genus_estimate estimate;
    genus_time until;
} genus_former;

/* State: what came from a node that is the master, or wants to be. */
typedef struct {
    genus_time last_sync_at;
    genus_time sync_local;
    genus_sample chain[GENUS_CLOCK_CONFIRMATIONS];
    uint8_t chained;
    uint8_t node; /* 0 if unused */
    uint8_t sequence;
    uint8_t era;
    uint8_t paired;
    uint8_t unpaired;
    bool has_sync;
    bool came_twice;
    bool has_paired;
} genus_master;

typedef struct {
    uint16_t malformed;
    uint16_t own_number;
    uint16_t not_master;
    uint16_t duplicate;
    uint16_t unpaired;
    uint16_t contradiction;
} genus_clock_drops;

/* State: global time at one node. */
typedef struct {
    genus_clock_settings settings;
    genus_estimate estimate;
    genus_line ahead;
    genus_former formers[GENUS_CLOCK_FORMERS];
    genus_sample samples[GENUS_CLOCK_SAMPLES];
    genus_master masters[GENUS_CLOCK_MASTERS];
    genus_time refreshed_at;
    genus_time unknown_until;
    genus_time stepped_ns; /* by how much global time was wrong when it was set last */
    genus_clock_drops drops;
    uint8_t sampled;
    uint8_t formers_used;
    uint8_t master; /* 0 if there is none */
    uint8_t told_master;
    bool is_started;
    bool is_ahead;
    bool is_unknown;
    bool is_synchronised; /* as it was told last */
} genus_clock;

void genus_clock_init(genus_clock *clock, const genus_clock_settings *settings);

/* A SYNC or FOLLOW_UP has ended; `own` is the number of this node. */
void genus_clock_receive(genus_clock *clock, const genus_frame *frame, uint8_t own, genus_time now);

/* Global time at a local reading; it does not go back. The local reading, before the first
 * synchronisation. */
genus_time genus_clock_at(const genus_clock *clock, genus_time local);

/* The first local reading at which it is this global time, or later. */
genus_time genus_clock_when(const genus_clock *clock, genus_time global);

/* A bound on the error of global time; GENUS_UNBOUNDED if there is none. */
genus_time genus_clock_precision(const genus_clock *clock, genus_time now);

/* When `genus_clock_wake` is due; GENUS_NEVER if it is not. */
genus_time genus_clock_wake_at(const genus_clock *clock);

/* Forget what is too old; call it after every frame of the time service too.
 * Returns whether global time became known or unknown, or has another master. */
bool genus_clock_wake(genus_clock *clock, genus_time now);

/* floor(value * factor / 10^9), exact for every value. */
genus_time genus_parts_per_billion(genus_time value, int32_t factor);

#ifdef __cplusplus
}
#endif

#endif
