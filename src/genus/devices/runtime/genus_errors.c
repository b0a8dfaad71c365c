/* SPDX-License-Identifier: Apache-2.0 */
/* What a node knows of its controller's errors, and how it recovers from them.
 *
 * A controller that is error passive may be too late for a slot that is not planned for that, so a
 * node promises nothing from the warning of its controller on. Each frame that is sent lowers the
 * error counter; a node that sends little but hard events sends empty reports meanwhile. */
#include "genus_node_parts.h"

#include <string.h>

#define ERRORS_NONE 0U
#define ERRORS_PASSIVE 1U
#define ERRORS_STOPPED 2U

/* How long recovery waits, in longest frames: after an empty report that was sent, and after one
 * that failed. */
#define PAUSE_FRAMES 1U
#define FIRST_RETRY_FRAMES 4U
#define LAST_RETRY_FRAMES 32U

/* Tell if the node stops or resumes to promise its slots, or the state of its controller changed.
 */
void genus_errors_check(genus_node *node)
{
    uint8_t errors = ERRORS_NONE;
    if (!genus_calendar_promises(node)) {
        errors = ERRORS_STOPPED;
    } else if (node->is_passive) {
        errors = ERRORS_PASSIVE;
    } else {
        /* all is well */
    }
    if (errors == node->told_errors) {
        return;
    }
    node->told_errors = errors;
    if (errors == ERRORS_NONE) {
        genus_tell(node, GENUS_NOTICE_ERROR_ACTIVE, GENUS_NO_CHANNEL, 0U, 0U, node->now);
    } else {
        genus_tell(node, GENUS_NOTICE_ERROR_PASSIVE, GENUS_NO_CHANNEL, 0U,
                   (errors == ERRORS_PASSIVE) ? 1U : 0U, node->now);
        genus_recovery_start(node);
    }
}

static bool needs_recovery(const genus_node *node)
{
    return node->is_passive && genus_calendar_has_senders(node);
}

/* Each frame that is sent lowers the controller's error counter, so empty reports of the lowest
 * priority end the time in which nothing is promised. Receivers ignore them. */
static void send_empty(genus_node *node)
{
    genus_frame frame;
    if (needs_recovery(node)) {
        (void)memset(&frame, 0, sizeof frame);
        frame.id = genus_identifier(GENUS_PRIORITY_BULK, node->number, GENUS_ETAG_REPORT);
        node->recovery_message =
            genus_queue_add(node, &frame, GENUS_MESSAGE_RECOVERY, 0U, GENUS_THEN_NOTHING);
    }
}

static void pause_recovery(genus_node *node, uint8_t frames)
{
    node->recovery_message = 0U;
    if (needs_recovery(node)) {
        node->recovery_at =
            node->now + ((genus_time)frames * genus_frame_ns(node, GENUS_DATA_BYTES));
    }
}

void genus_recovery_start(genus_node *node)
{
    if ((node->recovery_message == 0U) && (node->recovery_at == GENUS_NEVER)) {
        send_empty(node);
    }
}

void genus_recovery_failed(genus_node *node, const genus_frame *frame)
{
    const bool is_empty = (frame->size == 0U) && (genus_etag_of(frame->id) == GENUS_ETAG_REPORT);
    if ((node->recovery_message != 0U) && is_empty) {
        const uint8_t twice = (uint8_t)(2U * node->recovery_frames);
        genus_queue_remove(node, node->recovery_message);
        pause_recovery(node, node->recovery_frames);
        node->recovery_frames = (twice < LAST_RETRY_FRAMES) ? twice : LAST_RETRY_FRAMES;
    }
}

void genus_recovery_sent(genus_node *node)
{
    node->recovery_frames = FIRST_RETRY_FRAMES;
    pause_recovery(node, PAUSE_FRAMES);
}

void genus_recovery_wake(genus_node *node)
{
    if (node->recovery_at <= node->now) {
        node->recovery_at = GENUS_NEVER;
        send_empty(node);
    }
}
