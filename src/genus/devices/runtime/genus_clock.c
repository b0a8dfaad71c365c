/* SPDX-License-Identifier: Apache-2.0 */
#include "genus_clock.h"

#include <string.h>

#if GENUS_WITH_CALENDAR

#define PPB ((genus_time)1000000000)
#define STABLE_NS ((genus_time)1000000000)
#define SLEW_LIMIT_NS ((genus_time)1000000000)
#define HALF_SPEED (-500000000)
#define ROUNDING_NS 2
#define SILENT_SYNCS 3U
#define SILENCE 3 /* periods; see docs/wire.md */
#define HANDOVER 5
#define UNCERTAINTY 8
/* An age beyond this does not change a bound that is used, and products stay within 64 bits. */
#define OLDEST ((genus_time)1 << 40)
#define EARLIEST (-((genus_time)1 << 61))
#define LATEST ((genus_time)1 << 62)

/* -- exact arithmetic -------------------------------------------------------------------------- */

static genus_time floor_div(genus_time value, genus_time by)
{
    genus_time found = value / by;
    if (((value % by) != 0) && (value < 0)) {
        found--;
    }
    return found;
}

static genus_time ceil_div(genus_time value, genus_time by)
{
    return -floor_div(-value, by);
}

genus_time genus_parts_per_billion(genus_time value, int32_t factor)
{
    const genus_time whole = floor_div(value, PPB);
    const genus_time rest = value - (whole * PPB);
    return (whole * factor) + floor_div(rest * factor, PPB);
}

static genus_time distance(genus_time one, genus_time other)
{
    return (one < other) ? (other - one) : (one - other);
}

static genus_time larger(genus_time one, genus_time other)
{
    return (one < other) ? other : one;
}

static genus_time smaller(genus_time one, genus_time other)
{
    return (one < other) ? one : other;
}

/* -- lines and estimates ----------------------------------------------------------------------- */

static genus_time sample_ns(const genus_clock_settings *settings)
{
    return (genus_time)settings->granularity_ns + settings->bit_ns + ROUNDING_NS;
}

static int32_t divergence_ppb(const genus_clock_settings *settings)
{
    return (int32_t)(((2 * (int32_t)settings->drift_ppm) + (int32_t)settings->wander_ppm) *
                     (int32_t)1000);
}

static genus_time hold_over_ns(const genus_clock_settings *settings)
{
    return (settings->period_ns * 9) / 2;
}

static genus_time line_at(const genus_line *line, genus_time local)
{
    const genus_time since = local - line->local;
    return line->global + since + genus_parts_per_billion(since, line->rate_ppb);
}

static genus_time line_when(const genus_line *line, genus_time global)
{
    const genus_time speed = PPB + line->rate_ppb;
    const genus_time behind = line->global - global;
    const genus_time whole = floor_div(behind, speed);
    const genus_time rest = behind - (whole * speed);
    return line->local - ((whole * PPB) + ((rest * PPB) / speed));
}

static genus_time bound_of(const genus_estimate *estimate, genus_time now)
{
    const genus_time age = smaller(distance(now, estimate->line.local), OLDEST);
    const genus_time stable =
        smaller(age, larger(0, estimate->stable_until - estimate->line.local));
    const genus_time grown =
        (stable * estimate->growth_ppb) + ((age - stable) * estimate->later_ppb);
    return estimate->error_ns + ceil_div(grown, PPB);
}

static int32_t within(genus_time value, int32_t limit)
{
    return (int32_t)larger(-limit, smaller(limit, value));
}

/* The smallest and largest rate that fit two samples and the assumptions; if none does, the
 * assumptions. */
static void find_rates(const genus_sample *first, const genus_sample *last,
                       const genus_clock_settings *settings, int32_t *low, int32_t *high)
{
    const int32_t limit = divergence_ppb(settings);
    const genus_time span = last->local - first->local;
    *low = -limit;
    *high = limit;
    if (span > 0) {
        const genus_time differs = (last->global - first->global) - span;
        const genus_time gained = larger(-PPB, smaller(PPB, differs)) * PPB;
        const genus_time slack = 2 * sample_ns(settings) * PPB;
        const genus_time lowest = floor_div(gained - slack, span);
        const genus_time highest = ceil_div(gained + slack, span);
        if ((larger(-limit, lowest) <= smaller(limit, highest))) {
            *low = within(lowest, limit);
            *high = within(highest, limit);
        }
    }
}

static void estimate_clock(genus_clock *clock, int32_t guess_ppb)
{
    const genus_sample *const first = &clock->samples[0];
    const genus_sample *const last = &clock->samples[clock->sampled - 1U];
    const int32_t instability = (int32_t)clock->settings.wander_ppm * (int32_t)1500;
    genus_estimate *const found = &clock->estimate;
    int32_t low;
    int32_t high;
    int32_t rate;
    int32_t error;
    find_rates(first, last, &clock->settings, &low, &high);
    if (clock->sampled > 1U) {
        rate = (int32_t)floor_div((genus_time)low + high, 2);
    } else {
        rate = (guess_ppb < low) ? low : ((guess_ppb > high) ? high : guess_ppb);
    }
    error = (int32_t)(larger((genus_time)high - rate, (genus_time)rate - low) + 1);
    found->line.local = last->local;
    found->line.global = last->global;
    found->line.rate_ppb = rate;
    found->error_ns = sample_ns(&clock->settings);
    found->stable_until = first->local + STABLE_NS;
    found->later_ppb = divergence_ppb(&clock->settings) + ((rate < 0) ? -rate : rate);
    found->growth_ppb = (int32_t)smaller((genus_time)error + instability, found->later_ppb);
}

/* -- what is known of global time -------------------------------------------------------------- */

static genus_time estimate_at(const genus_clock *clock, genus_time local)
{
    return clock->is_started ? line_at(&clock->estimate.line, local) : local;
}

genus_time genus_clock_at(const genus_clock *clock, genus_time local)
{
    const genus_time estimate = estimate_at(clock, local);
    return clock->is_ahead ? larger(estimate, line_at(&clock->ahead, local)) : estimate;
}

genus_time genus_clock_when(const genus_clock *clock, genus_time global)
{
    genus_time found = global;
    if (clock->is_started) {
        found = line_when(&clock->estimate.line, global);
        if (clock->is_ahead) {
            found = smaller(found, line_when(&clock->ahead, global));
        }
    }
    return found;
}

static bool is_held(const genus_clock *clock, genus_time now)
{
    return clock->is_started && ((now - clock->refreshed_at) <= hold_over_ns(&clock->settings));
}

/* The largest difference from the master's time, and from those that other nodes may still use. */
static genus_time error_at(const genus_clock *clock, genus_time now)
{
    const genus_time best = estimate_at(clock, now);
    genus_time found = bound_of(&clock->estimate, now);
    uint8_t index;
    for (index = 0U; index < clock->formers_used; index++) {
        const genus_former *const former = &clock->formers[index];
        if (now < former->until) {
            const genus_time off = distance(best, line_at(&former->estimate.line, now));
            found = larger(found, bound_of(&former->estimate, now) + off);
        }
    }
    return found;
}

genus_time genus_clock_precision(const genus_clock *clock, genus_time now)
{
    genus_time bound;
    if (!is_held(clock, now) || (clock->is_unknown && (now < clock->unknown_until))) {
        return GENUS_UNBOUNDED;
    }
    bound = error_at(clock, now) + (genus_clock_at(clock, now) - estimate_at(clock, now));
    bound += (genus_time)clock->settings.granularity_ns;
    return (bound <= SLEW_LIMIT_NS) ? bound : GENUS_UNBOUNDED;
}

static void mark_unknown(genus_clock *clock, genus_time until)
{
    clock->unknown_until = clock->is_unknown ? larger(until, clock->unknown_until) : until;
    clock->is_unknown = true;
}

static void expire(genus_clock *clock, genus_time now)
{
    uint8_t kept = 0U;
    uint8_t index;
    for (index = 0U; index < clock->formers_used; index++) {
        if (now < clock->formers[index].until) {
            clock->formers[kept] = clock->formers[index];
            kept++;
        }
    }
    clock->formers_used = kept;
    if (clock->is_unknown && (now >= clock->unknown_until)) {
        clock->is_unknown = false;
    }
}

/* The difference of a sample from the estimate if it is larger than all known errors allow; else 0.
 */
static genus_time deviation(const genus_clock *clock, const genus_sample *sample, bool changed)
{
    genus_time off = 0;
    if (clock->is_started) {
        const genus_time allowed = changed ? (2 * error_at(clock, sample->local))
                                           : bound_of(&clock->estimate, sample->local);
        off = sample->global - estimate_at(clock, sample->local);
        if (distance(off, 0) <= (allowed + sample_ns(&clock->settings))) {
            off = 0;
        }
    }
    return off;
}

/* From now on another time is used, of which something is known `since` then. */
static void hand_over(genus_clock *clock, genus_time now, genus_time since)
{
    const genus_time handover = HANDOVER * clock->settings.period_ns;
    if (is_held(clock, now) && (clock->formers_used < GENUS_CLOCK_FORMERS)) {
        clock->formers[clock->formers_used].estimate = clock->estimate;
        clock->formers[clock->formers_used].until = now + handover;
        clock->formers_used++;
    } else { /* also if there is no room: then nothing is promised meanwhile */
        mark_unknown(clock, is_held(clock, now) ? (now + handover) : (since + handover));
    }
    clock->sampled = 0U;
}

static void remove_samples(genus_clock *clock, uint8_t count)
{
    clock->sampled = (uint8_t)(clock->sampled - count);
    (void)memmove(&clock->samples[0], &clock->samples[count],
                  clock->sampled * sizeof clock->samples[0]);
}

/* Keep a sample; the ones between the oldest and the newest are thinned out as far as room
 * requires. */
static void add_sample(genus_clock *clock, const genus_sample *sample)
{
    const genus_time spacing = (STABLE_NS / 2) / (GENUS_CLOCK_SAMPLES - 1);
    const uint8_t used = clock->sampled;
    const bool is_close =
        (used >= 2U) &&
        ((clock->samples[used - 1U].local - clock->samples[used - 2U].local) < spacing);
    uint8_t old = 0U;
    if (is_close) {
        clock->sampled = (uint8_t)(used - 1U);
    } else if (used >= GENUS_CLOCK_SAMPLES) {
        remove_samples(clock, 1U);
    } else {
        /* there is room */
    }
    clock->samples[clock->sampled] = *sample;
    clock->sampled++;
    while ((sample->local - clock->samples[old].local) > (STABLE_NS / 2)) {
        old++;
    }
    remove_samples(clock, old);
}

/* Use samples of a master, the last of which is new; `anew` if they do not continue the current
 * ones. */
static void adopt(genus_clock *clock, const genus_sample *samples, uint8_t count, genus_time now,
                  bool anew)
{
    const bool had = clock->is_started;
    const genus_time shown = genus_clock_at(clock, now);
    const int32_t guess = had ? (int32_t)floor_div(clock->estimate.line.rate_ppb, 2) : 0;
    genus_time ahead;
    uint8_t index;
    if (anew) {
        hand_over(clock, now, samples[0].local);
    }
    for (index = 0U; index < count; index++) {
        add_sample(clock, &samples[index]);
    }
    estimate_clock(clock, guess);
    clock->is_started = true;
    clock->refreshed_at = samples[count - 1U].local;
    ahead = shown - estimate_at(clock, now);
    clock->is_ahead = had && (ahead > 0) && (ahead <= SLEW_LIMIT_NS);
    if (clock->is_ahead) {
        clock->ahead.local = now;
        clock->ahead.global = shown;
        clock->ahead.rate_ppb = HALF_SPEED;
    }
}

/* -- masters ----------------------------------------------------------------------------------- */

static genus_master *find_master(genus_clock *clock, uint8_t node)
{
    genus_master *found = NULL;
    uint8_t index;
    for (index = 0U; index < GENUS_CLOCK_MASTERS; index++) {
        if (clock->masters[index].node == node) {
            found = &clock->masters[index];
        }
    }
    return found;
}

/* What is known of a node; the one that was silent longest is forgotten for it, never the master.
 */
static genus_master *remember_master(genus_clock *clock, uint8_t node)
{
    genus_master *found = find_master(clock, node);
    uint8_t index;
    if (found == NULL) {
        for (index = 0U; index < GENUS_CLOCK_MASTERS; index++) {
            genus_master *const each = &clock->masters[index];
            const bool is_free = (each->node == 0U) || (each->node != clock->master);
            if (is_free && ((found == NULL) || (each->last_sync_at < found->last_sync_at))) {
                found = each;
            }
        }
        (void)memset(found, 0, sizeof *found);
        found->node = node;
    }
    return found;
}

static bool may_lead(genus_clock *clock, uint8_t node, genus_time now)
{
    const genus_time period = clock->settings.period_ns;
    const genus_master *master;
    if ((clock->master == 0U) || (node <= clock->master)) {
        return true;
    }
    master = find_master(clock, clock->master);
    return (master == NULL) || ((now - master->last_sync_at) > ((SILENCE * period) - (period / 2)));
}

static void receive_sync(genus_clock *clock, const genus_frame *frame, genus_time now)
{
    genus_master *const master = remember_master(clock, genus_node_of(frame->id));
    const uint8_t sequence = frame->data[0];
    bool is_twice;
    if (master->has_paired && (sequence == master->paired)) {
        clock->drops.duplicate++;
        return;
    }
    is_twice = master->has_sync && (master->sequence == sequence);
    master->has_sync = true;
    master->came_twice = is_twice;
    master->sequence = sequence;
    master->era = frame->data[1];
    master->sync_local = now;
    master->last_sync_at = now;
    if (is_twice) {
        clock->drops.duplicate++;
    } else if (master->unpaired <= SILENT_SYNCS) {
        master->unpaired++;
    } else {
        /* it sends SYNC without FOLLOW_UP */
    }
}

static genus_time time_in(const genus_frame *frame, uint8_t era)
{
    uint64_t time = era;
    uint8_t index;
    for (index = 1U; index < GENUS_FRAME_BYTES; index++) {
        time = (time << 8) | frame->data[index];
    }
    return (time >> 63) != 0U ? -(genus_time)(~time) - 1 : (genus_time)time;
}

static bool is_consistent(const genus_clock *clock, const genus_sample *first,
                          const genus_sample *second)
{
    const genus_clock_settings *const settings = &clock->settings;
    const genus_time span = second->local - first->local;
    const genus_time differs = distance(second->global - first->global, span);
    const genus_time hold_over = hold_over_ns(settings);
    return (span > 0) && (span <= hold_over) &&
           (differs <=
            ((2 * sample_ns(settings)) + genus_parts_per_billion(span, divergence_ppb(settings))));
}

static void add_to_chain(const genus_clock *clock, genus_master *master, const genus_sample *sample)
{
    if ((master->chained > 0U) &&
        !is_consistent(clock, &master->chain[master->chained - 1U], sample)) {
        master->chained = 0U;
    }
    master->chain[master->chained] = *sample;
    master->chained++;
}

/* The time is uncertain while a node with a lower number than the master's sends another time. */
static void check_other_times(genus_clock *clock, genus_time now)
{
    uint8_t index;
    for (index = 0U; index < GENUS_CLOCK_MASTERS; index++) {
        const genus_master *const each = &clock->masters[index];
        if ((each->node != 0U) && (each->node < clock->master) && (each->chained > 0U) &&
            ((now - each->chain[each->chained - 1U].local) <= hold_over_ns(&clock->settings))) {
            mark_unknown(clock, now + (UNCERTAINTY * clock->settings.period_ns));
        }
    }
}

/* Use a sample that is consistent with the current time; another must be confirmed by further
 * samples. */
static void evaluate(genus_clock *clock, genus_master *master, const genus_sample *sample,
                     genus_time now)
{
    const bool is_changed = master->node != clock->master;
    const bool is_known = is_held(clock, now);
    const genus_time off = deviation(clock, sample, is_changed);
    bool is_confirmed;
    if (is_known && (off == 0)) {
        master->chained = 0U;
        adopt(clock, sample, 1U, now, is_changed);
        clock->master = master->node;
        return;
    }
    add_to_chain(clock, master, sample);
    is_confirmed = master->chained >= GENUS_CLOCK_CONFIRMATIONS;
    if (is_confirmed) {
        if (off != 0) {
            clock->stepped_ns = off;
        }
        adopt(clock, master->chain, master->chained, now, true);
        clock->master = master->node;
        master->chained = 0U;
    }
    check_other_times(clock, now);
    if (is_known && !is_confirmed) {
        clock->drops.contradiction++;
    }
}

static void receive_follow_up(genus_clock *clock, const genus_frame *frame, genus_time now)
{
    genus_master *const master = remember_master(clock, genus_node_of(frame->id));
    const bool is_pair = master->has_sync && !master->came_twice &&
                         (master->sequence == frame->data[0]) &&
                         ((now - master->sync_local) <= (SILENCE * clock->settings.period_ns));
    genus_sample sample;
    master->has_sync = false;
    if (!is_pair) {
        clock->drops.unpaired++;
        return;
    }
    master->has_paired = true;
    master->paired = master->sequence;
    master->unpaired = 0U;
    sample.local = master->sync_local;
    sample.global = time_in(frame, master->era);
    if ((sample.global < EARLIEST) || (sample.global > LATEST)) {
        clock->drops.malformed++;
        master->chained = 0U; /* it contradicts all others */
    } else {
        evaluate(clock, master, &sample, now);
    }
}

static bool is_well_formed(const genus_frame *frame)
{
    const uint8_t size = (genus_etag_of(frame->id) == GENUS_ETAG_SYNC) ? 2U : GENUS_FRAME_BYTES;
    return (frame->size == size) && (genus_priority_of(frame->id) == GENUS_PRIORITY_SYSTEM) &&
           (genus_node_of(frame->id) != 0U);
}

/* -- inputs ------------------------------------------------------------------------------------ */

void genus_clock_init(genus_clock *clock, const genus_clock_settings *settings)
{
    (void)memset(clock, 0, sizeof *clock);
    clock->settings = *settings;
}

void genus_clock_receive(genus_clock *clock, const genus_frame *frame, uint8_t own, genus_time now)
{
    const uint8_t node = genus_node_of(frame->id);
    if (!is_well_formed(frame)) {
        clock->drops.malformed++;
    } else if (node == own) {
        clock->drops.own_number++;
    } else if (!may_lead(clock, node, now)) {
        clock->drops.not_master++;
    } else if (genus_etag_of(frame->id) == GENUS_ETAG_SYNC) {
        receive_sync(clock, frame, now);
    } else {
        receive_follow_up(clock, frame, now);
    }
}

genus_time genus_clock_wake_at(const genus_clock *clock)
{
    genus_time found = clock->is_unknown ? clock->unknown_until : GENUS_NEVER;
    if (clock->is_synchronised) {
        found = smaller(found, clock->refreshed_at + hold_over_ns(&clock->settings) + 1);
    }
    return found;
}

bool genus_clock_wake(genus_clock *clock, genus_time now)
{
    const bool was_synchronised = clock->is_synchronised;
    const uint8_t told = clock->told_master;
    expire(clock, now);
    clock->is_synchronised = genus_clock_precision(clock, now) < GENUS_UNBOUNDED;
    if (!is_held(clock, now)) {
        clock->master = 0U;
    }
    clock->told_master = clock->master;
    return (clock->is_synchronised != was_synchronised) || (clock->master != told);
}

#endif
