"""What a run has to show, and whether it did: the top of the report, the terminal output and the exit code."""

import msgspec

from genus_traffic.report.formats import count_of, format_count, format_share
from genus_traffic.results import GOAL, CompiledSubscription, Results


class Check(msgspec.Struct, frozen=True):
    """One claim about a run."""

    name: str
    holds: bool | None
    """None if the run gave nothing to check it on."""
    figure: str
    says: str


def checks(results: Results) -> tuple[Check, ...]:
    """The claims about a run, the most important first."""
    return (
        _speeds(results),
        _nothing_invented(results),
        _everything_counted(results),
        _nothing_lost(results),
        _stream_is_batch(results),
        _road_is_lake(results),
        _same_everywhere(results),
        _deadlines_kept(results, "hard"),
        _deadlines_kept(results, "soft"),
        _nothing_unreadable(results),
    )


def answers_agree(compiled: CompiledSubscription) -> bool:
    """Whether a subscription matched the same number of events on every target."""
    return len(set(compiled.answers.values())) <= 1


def _speeds(results: Results) -> Check:
    accuracy = results.accuracy
    if not accuracy.complete:
        return Check("speeds right", None, "–", "no vehicle was detected by both loops")
    passages = count_of(accuracy.complete, "passage")
    says = f"{format_count(accuracy.right)} of {passages} within {accuracy.tolerance:g} m/s of truth"
    if not accuracy.reaches_goal:
        says += f"; the goal is {GOAL:.1%}".replace("%", " %")
    return Check("speeds right", accuracy.reaches_goal, format_share(accuracy.right, accuracy.complete), says)


def _nothing_invented(results: Results) -> Check:
    invented, one_sided = results.accuracy.invented, results.accuracy.one_sided
    if not (results.accuracy.complete or one_sided or invented):
        return Check("speeds invented", None, "–", "no vehicle came")
    says = f"speeds without a vehicle, though {count_of(one_sided, 'passage')} triggered one loop only"
    return Check("speeds invented", invented == 0, format_count(invented), says)


def _everything_counted(results: Results) -> Check:
    counted, to_count = results.accuracy.counted, results.accuracy.to_count
    if not to_count and not counted:
        return Check("vehicles counted", None, "–", "no vehicle came")
    says = f"of {format_count(to_count)} that an upper loop detected and reported in time"
    return Check("vehicles counted", counted == to_count, format_count(counted), says)


def _nothing_lost(results: Results) -> Check:
    refit = results.refit
    if not refit.published and not refit.delivered:
        return Check("events lost in the refit", None, "–", "no event was published for the collector")
    if refit.published == refit.delivered and all(site.refit_us is None for site in results.sites):
        return Check("events lost in the refit", None, "–", "no sensor was replaced")
    lost = refit.published - refit.delivered
    events = count_of(refit.published, "event")
    says = f"{format_count(refit.delivered)} of {events} reached the collector while sensors were replaced"
    name = "events lost in the refit" if lost >= 0 else "events too many in the refit"
    return Check(name, lost == 0, format_count(abs(lost)), says)


def _stream_is_batch(results: Results) -> Check:
    if results.stream_equals_batch and not results.event_count:
        return Check("stream and batch", None, "–", "there was nothing to compute")
    if results.stream_equals_batch:
        return Check("stream and batch", True, "same", "the same code gave the same results on a stream and in batch")
    return Check("stream and batch", False, "differ", "the stream's results are not those of the batch")


def _same_everywhere(results: Results) -> Check:
    asked = results.subscriptions
    targets = max((len(compiled.answers) for compiled in asked), default=0)
    if targets < 2:
        return Check("subscriptions agree", None, "–", "no subscription ran on two targets")
    agreeing = sum(answers_agree(compiled) for compiled in asked)
    says = f"match the same number of events on every target, of up to {targets}"
    return Check("subscriptions agree", agreeing == len(asked), f"{agreeing} of {len(asked)}", says)


def _road_is_lake(results: Results) -> Check:
    road = results.roadside
    if not road.lanes:
        return Check("roadside and lake", None, "–", "there was no lane to compare")
    passages = count_of(road.passages, "passage")
    says = f"lanes without late events in which roadside monitors and lake found the same {passages}"
    return Check("roadside and lake", road.alike == road.lanes, f"{road.alike} of {road.lanes}", says)


def _deadlines_kept(results: Results, qos: str) -> Check:
    name = f"{qos} deadlines missed"
    channels = [channel for channel in results.channels if channel.qos == qos and channel.published]
    if not channels:
        return Check(name, None, "–", f"no channel was {qos} real time")
    missed = sum(channel.missed for channel in channels)
    silent = [channel for channel in channels if not channel.delivered]
    events = count_of(sum(each.published for each in channels), "event")
    says = f"of {events} on {count_of(len(channels), f'{qos} channel')}"
    says += f"; {count_of(len(silent), 'channel')} delivered nothing" if silent else ""
    return Check(name, missed == 0 and not silent, format_count(missed), says)


def _nothing_unreadable(results: Results) -> Check:
    if not results.event_count and not results.dead_letters:
        return Check("dead letters", None, "–", "no event was recorded")
    says = f"set aside as unreadable, of {count_of(results.event_count, 'recorded event')}"
    return Check("dead letters", results.dead_letters == 0, format_count(results.dead_letters), says)
