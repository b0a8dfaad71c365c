"""A whole generated firmware, dispatch and node, as a machine of the simulator."""

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from genus.can._machine import Accept, Load, Output
from genus.can._node.membership import PROTOCOL_FILTER
from genus.can._wire.frame import Frame
from genus.devices import Firmware
from tests.programs import need

from .toolchain import WARNINGS

LoadCall = ctypes.CFUNCTYPE(
    None, ctypes.c_int, ctypes.c_int, ctypes.c_uint32, ctypes.c_int, ctypes.POINTER(ctypes.c_uint8)
)
GLUE = """
#include "NAME_node.h"
typedef void (*load_call)(int, int, uint32_t, int, const uint8_t *);
static genus_node node;
static genus_config config;
static load_call loader;
static uint32_t hits[HANDLERS];
static uint32_t notices[64];
DEFINITIONS
static void load(void *context, uint8_t mailbox, const genus_frame *frame) {
    (void)context;
    if (frame == NULL) { loader(mailbox, 0, 0U, 0, NULL); }
    else { loader(mailbox, 1, frame->id, frame->size | (genus_is_fd(frame) ? 256 : 0), frame->data); }
}
static void on_notice(void *context, const genus_notice *notice) { (void)context; notices[notice->kind]++; }
static genus_frame frame_of(uint32_t id, const uint8_t *data, int size) {
    genus_frame frame;
    memset(&frame, 0, sizeof frame);
    frame.id = id; frame.size = (uint8_t)size; genus_set_fd(&frame, size > 255);
    memcpy(frame.data, data, frame.size);
    return frame;
}
int machine_start(uint64_t uid, load_call call, int64_t now);
int machine_start(uint64_t uid, load_call call, int64_t now) {
    NAME_configure(&config);
    for (int i = 0; i < 8; i++) { config.uid[i] = (uint8_t)(uid >> (56 - (8 * i))); }
    loader = call; config.calls.load = load; config.calls.on_notice = on_notice;
    if (!genus_node_init(&node, &config)) { return 0; }
    NAME_start(&node, now);
    return 1;
}
void machine_frame(int what, uint32_t id, const uint8_t *data, int size, int64_t now);
void machine_frame(int what, uint32_t id, const uint8_t *data, int size, int64_t now) {
    const genus_frame frame = frame_of(id, data, size);
    if (what == 0) { genus_node_receive(&node, &frame, now); }
    else if (what == 1) { genus_node_sent(&node, &frame, now); }
    else { genus_node_failed(&node, &frame, now); }
}
void machine_lost(int64_t now);
void machine_lost(int64_t now) { genus_node_lost(&node, now); }
int64_t machine_wake_at(void);
int64_t machine_wake_at(void) { return genus_node_wake_at(&node); }
void machine_wake(int64_t now);
void machine_wake(int64_t now) { genus_node_wake(&node, now); }
uint32_t machine_hits(int handler);
uint32_t machine_hits(int handler) { return hits[handler]; }
uint32_t machine_segmented(void);
uint32_t machine_segmented(void) { return node.drops.segmented; }
uint32_t machine_notices(int kind);
uint32_t machine_notices(int kind) { return notices[kind]; }
"""


class FirmwareMachine:
    """State: a firmware in this process; `definitions` are C functions that the test calls through `library`."""

    def __init__(self, firmware: Firmware, uid: int, definitions: str = "", options: Sequence[str] = ()) -> None:
        program = firmware._program
        handlers = [
            f"void {program.handler_name(handler, family)}(const {program.name}_{family.label} *event)\n"
            f"{{ (void)event; hits[{handler.number}]++; }}"
            for handler in program.handlers
            for family in program.families_of(handler)
        ]
        glue = GLUE.replace("NAME", program.name).replace("HANDLERS", str(max(1, len(program.handlers))))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            sources = [str(path) for path in firmware.write(folder) if path.suffix == ".c"]
            (folder / "glue.c").write_text(glue.replace("DEFINITIONS", "\n".join([*handlers, definitions])))
            made = folder / "firmware.so"
            command = [need("gcc"), *WARNINGS, "-shared", "-fPIC", "-O1", *options, *sources]
            done = subprocess.run([*command, str(folder / "glue.c"), "-o", str(made)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr[:4000]
            self.library = ctypes.CDLL(str(made))
        self.library.machine_wake_at.restype = ctypes.c_int64
        self._uid = uid
        self._outputs: list[Output] = []
        self._load = LoadCall(self._loaded)
        self._filters = [(pair.value, pair.mask) for pair in program.filters]

    def _loaded(
        self, mailbox: int, is_frame: int, identifier: int, size: int, data: "ctypes._Pointer[ctypes.c_uint8]"
    ) -> None:
        frame = Frame(identifier, bytes(data[: size & 255]), size > 255) if is_frame else None
        self._outputs.append(Load(mailbox, frame))

    def hits(self, handler: int) -> int:
        """How often a handler was called."""
        return int(self.library.machine_hits(handler))

    # -- machine -----------------------------------------------------------------------------------------------------

    def start(self, now: int) -> None:
        self._outputs.append(Accept((PROTOCOL_FILTER, *self._filters)))
        started = self.library.machine_start(ctypes.c_uint64(self._uid), self._load, ctypes.c_int64(now))
        assert started, "the tables do not fit the node"

    def _frame(self, what: int, frame: Frame, now: int) -> None:
        self.library.machine_frame(what, frame.id, frame.data, len(frame.data) | frame.fd << 8, ctypes.c_int64(now))

    def receive(self, frame: Frame, now: int) -> None:
        self._frame(0, frame, now)

    def sent(self, frame: Frame, now: int) -> None:
        self._frame(1, frame, now)

    def failed(self, frame: Frame, now: int) -> None:
        self._frame(2, frame, now)

    def lost(self, now: int) -> None:
        self.library.machine_lost(ctypes.c_int64(now))

    def taken(self, frame: Frame, now: int) -> None:
        raise AssertionError("the C node is for drivers without a queue")

    def unconfirmed(self, frame: Frame, now: int, *, gone: bool, maybe_sent: bool = True) -> None:
        raise AssertionError("the C node is for drivers without a queue")

    def error_passive(self, now: int, passive: bool) -> None: ...

    def bus_off(self, now: int) -> None: ...

    def bus_on(self, now: int) -> None: ...

    @property
    def wake_at(self) -> int | None:
        at = int(self.library.machine_wake_at())
        return None if at == (1 << 63) - 1 else at

    def wake(self, now: int) -> None:
        self.library.machine_wake(ctypes.c_int64(now))

    def take(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs
