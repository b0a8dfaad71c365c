"""All segments of a city, generated and simulated in processes, as many at a time as there are cores."""

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
from genus_traffic.road.detections import Passage
from genus_traffic.road.generator import generate
from genus_traffic.road.scene import Scene, Site
from genus_traffic.segment.segment import Segment, SegmentOutcome

Told: TypeAlias = tuple[str, float]
"""A site, and how much of it is done, up to 1."""
CORRUPTED = 0.001
"""The share of frames that a segment's bus corrupts: they are sent again, and nothing is lost."""
POLL_S = 0.1


class SiteRun(NamedTuple):
    """A site's traffic, as it was and as its segment told it."""

    passages: tuple[Passage, ...]
    outcome: SegmentOutcome


class SegmentsFailed(GenusError, RuntimeError):
    """A process that simulated a segment is gone: the machine may be out of memory. Take fewer or smaller sites."""


def run_segments(scene: Scene, progress: Callable[[float], object] | None = None) -> list[SiteRun]:
    """Every site's run, in the order of the scene; `progress` is told how much of all is done."""
    with _workers(min(len(scene.sites), _cores())) as (pool, told):
        with _undisturbed():
            futures = [pool.submit(_run_site, scene, site.name) for site in scene.sites]
        _follow(futures, told, progress or (lambda _: None), [site.name for site in scene.sites])
        try:
            return [future.result() for future in futures]
        except BrokenProcessPool as problem:
            raise SegmentsFailed("a simulation was killed; the machine may be out of memory") from problem


def simulate_site(scene: Scene, site: Site, progress: Callable[[float], object]) -> SiteRun:
    """A site's traffic over its CAN segment."""
    traffic = generate(site, scene)
    segment = Segment(
        site=site.name,
        place=site.place,
        lanes=site.lanes,
        detections=traffic.detections,
        start_us=scene.start_us,
        end_us=scene.end_us,
        refit_us=scene.refit_us(site.name),
        asked_us=(scene.start_us + (scene.end_us - scene.start_us) // 4,),
        seed=scene.seed,
        error_share=CORRUPTED,
    )
    return SiteRun(traffic.passages, segment.run(progress))


def _follow(
    futures: Sequence[Future[SiteRun]], told: "Queue[Told]", progress: Callable[[float], object], names: Sequence[str]
) -> None:
    done = dict.fromkeys(names, 0.0)
    left = set[Future[SiteRun]](futures)
    while left:
        left -= wait(left, POLL_S, return_when="FIRST_EXCEPTION").done
        done.update(_heard(told))
        progress(sum(done.values()) / len(done))
        if any(future.done() and future.exception() is not None for future in futures):
            return


def _heard(told: "Queue[Told]") -> Iterator[Told]:
    while True:
        try:
            yield told.get_nowait()
        except queue.Empty:
            return


def _cores() -> int:
    return len(os.sched_getaffinity(0))


# In the processes

_stop: Flag
_told: "Queue[Told]"


@contextmanager
def _workers(number: int) -> Iterator[tuple[ProcessPoolExecutor, "Queue[Told]"]]:
    """Processes that end as soon as the block is left by an exception, Ctrl-C among them."""
    context = get_context("spawn")
    stop, told = context.Event(), context.Queue()
    with ProcessPoolExecutor(number, context, initializer=_begin, initargs=(stop, told)) as pool:
        try:
            yield pool, told
        except BaseException:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise
        finally:
            told.cancel_join_thread()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Processes that are started within never hear of Ctrl-C: the one that started them says when to stop."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(stop: Flag, told: "Queue[Told]") -> None:
    global _stop, _told
    _stop, _told = stop, told
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A process whose parent was killed has nobody to work for."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run_site(scene: Scene, name: str) -> SiteRun:
    def progress(done: float) -> None:
        if _stop.is_set():
            raise KeyboardInterrupt
        _told.put((name, done))

    return simulate_site(scene, scene.site(name), progress)
