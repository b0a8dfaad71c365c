"""Studio: a live page on buses, gateways, simulations, recordings and lakes.

`open_studio` and `Bus.studio` open the page, for which they need the extra `studio`. `bundle`, `stylesheet` and
`vendor` give the components of the page to others, as text.
"""

from typing import TYPE_CHECKING

from genus._lazy import lazy

if TYPE_CHECKING:
    from genus.studio._alerts import Alert
    from genus.studio._components import bundle, stylesheet, vendor
    from genus.studio._layout import Layout, PlotLayout, load_layout
    from genus.studio._open import open_source
    from genus.studio._rows import (
        AlertRow,
        AttributeCell,
        ChannelRow,
        GatewayRow,
        LakeCommitRow,
        LakeFollowerRow,
        LakeTableRow,
        NodeRow,
        ProblemRow,
        Row,
        SourceRow,
        SubscriptionRow,
        TypeChangeRow,
        TypeRow,
    )
    from genus.studio._simulation import SimulatedSystem, SimulationMaker, open_simulation, parse_simulation
    from genus.studio._source import (
        AskedSource,
        EventSource,
        FrameSpan,
        PlayedSource,
        PublishingSource,
        SlotSpan,
        Source,
        TimedSource,
        Timeline,
        TimelineSource,
        WaitingSource,
    )
    from genus.studio._studio import Studio, open_studio

__all__ = [
    "Alert",
    "AlertRow",
    "AskedSource",
    "AttributeCell",
    "ChannelRow",
    "EventSource",
    "FrameSpan",
    "GatewayRow",
    "LakeCommitRow",
    "LakeFollowerRow",
    "LakeTableRow",
    "Layout",
    "NodeRow",
    "PlayedSource",
    "PlotLayout",
    "ProblemRow",
    "PublishingSource",
    "Row",
    "SimulatedSystem",
    "SimulationMaker",
    "SlotSpan",
    "Source",
    "SourceRow",
    "Studio",
    "SubscriptionRow",
    "TimedSource",
    "Timeline",
    "TimelineSource",
    "TypeChangeRow",
    "TypeRow",
    "WaitingSource",
    "bundle",
    "load_layout",
    "open_simulation",
    "open_source",
    "open_studio",
    "parse_simulation",
    "stylesheet",
    "vendor",
]

if not TYPE_CHECKING:
    __getattr__ = lazy(__name__)
