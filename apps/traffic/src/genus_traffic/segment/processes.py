"""The segments of a city, generated and simulated in worker processes, as many at a time as there are cores."""

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event as Flag
from typing import NamedTuple, TypeAlias

from genus.errors import GenusError
from genus_traffic.road.generator import generate
from genus_traffic.road.scene import Scene, Site
from genus_traffic.road.truth import Detection, Passage
from genus_traffic.segment.segment import Segment, SegmentOutcome

SiteProgress: TypeAlias = tuple[str, float]
"""A site, and how much of its run is done, up to 1."""
CORRUPTED = 0.001
"""The share of frames that are corrupted on a segment's bus; controllers retransmit them."""
POLL_S = 0.1


class SiteRun(NamedTuple):
    """The true passages of a site, and the outcome of its segment."""

    passages: tuple[Passage, ...]
    outcome: SegmentOutcome


class SegmentsFailed(GenusError, RuntimeError):
    """A process that simulated a segment was killed: the machine may be out of memory. Use fewer or smaller sites."""


def run_segments(scene: Scene, progress: Callable[[float], object] | None = None) -> list[SiteRun]:
    """Run all sites, in the order of the scene; `progress` is called with how much is done, up to 1.

    Raises:
        SegmentsFailed: A worker process was killed.
    """
    with _workers(min(len(scene.sites), _cores())) as (pool, updates):
        with _sigint_blocked():
            futures = [pool.submit(_run_site, scene, site.name) for site in scene.sites]
        _report_progress(futures, updates, progress or (lambda _: None), [site.name for site in scene.sites])
        try:
            return [future.result() for future in futures]
        except BrokenProcessPool as problem:
            raise SegmentsFailed("a simulation was killed; the machine may be out of memory") from problem


def simulate_site(scene: Scene, site: Site, progress: Callable[[float], object]) -> SiteRun:
    """Generate the traffic of a site and simulate its CAN segment."""
    traffic = generate(site, scene)
    return SiteRun(traffic.passages, segment_of(scene, site, traffic.detections).run(progress))


def segment_of(scene: Scene, site: Site, detections: tuple[Detection, ...] = ()) -> Segment:
    """The segment of a site with the detections of its traffic."""
    return Segment(
        site=site.name,
        place=site.place,
        lanes=site.lanes,
        detections=detections,
        start_us=scene.start_us,
        end_us=scene.end_us,
        refit_us=scene.refit_us(site.name),
        request_settings_us=(scene.start_us + (scene.end_us - scene.start_us) // 4,),
        seed=scene.seed,
        error_share=CORRUPTED,
    )


def _report_progress(
    futures: Sequence[Future[SiteRun]],
    updates: "Queue[SiteProgress]",
    progress: Callable[[float], object],
    names: Sequence[str],
) -> None:
    """Report progress until all workers are done or one has failed."""
    done = dict.fromkeys(names, 0.0)
    left = set[Future[SiteRun]](futures)
    while left:
        left -= wait(left, POLL_S, return_when="FIRST_EXCEPTION").done
        done.update(_drain(updates))
        progress(sum(done.values()) / len(done))
        if any(future.done() and future.exception() is not None for future in futures):
            return


def _drain(updates: "Queue[SiteProgress]") -> Iterator[SiteProgress]:
    while True:
        try:
            yield updates.get_nowait()
        except queue.Empty:
            return


def _cores() -> int:
    return len(os.sched_getaffinity(0))


# -- in the worker processes -------------------------------------------------------------------------------------------

_stop: Flag
_updates: "Queue[SiteProgress]"


@contextmanager
def _workers(number: int) -> Iterator[tuple[ProcessPoolExecutor, "Queue[SiteProgress]"]]:
    """Worker processes that end as soon as an exception, such as KeyboardInterrupt, leaves the block."""
    context = get_context("spawn")
    stop, updates = context.Event(), context.Queue()
    with ProcessPoolExecutor(number, context, initializer=_initialise, initargs=(stop, updates)) as pool:
        try:
            yield pool, updates
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            updates.cancel_join_thread()


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """Start processes that ignore Ctrl-C: the parent process stops them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _initialise(stop: Flag, updates: "Queue[SiteProgress]") -> None:
    global _stop, _updates
    _stop, _updates = stop, updates
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End this process if its parent is killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_site(scene: Scene, name: str) -> SiteRun:
    def progress(done: float) -> None:
        if _stop.is_set():
            raise KeyboardInterrupt
        _updates.put((name, done))

    return simulate_site(scene, scene.site(name), progress)
