"""What other rooms of Genus use of this one, beside its public names. Not for programs: it changes without notice."""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.net._mqtt.wire import Decoder, Malformed

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
