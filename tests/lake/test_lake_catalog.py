"""The catalog file of a lake, and subscriptions resolved against it."""

from pathlib import Path

import pytest

from genus import Catalog, Event, Maybe, Subscription, this
from genus.errors import CatalogConflict, NotRegistered
from genus.lake._tables.file_systems import LocalFileSystem
from genus.lake._tables.lake_catalog import CatalogFile, SubscriptionResolver
from tests.generators import Bell, Chime, Generator, Impostor, MarkedSampler, Stranger, WatchedSampler

TYPES = (WatchedSampler, MarkedSampler, Impostor, Stranger, Bell, Chime)


def loops() -> tuple[type[Event], type[Event]]:
    """Two versions of an event type; the second has one more attribute."""

    def first() -> type[Event]:
        class Loop(Event):
            lane: int

        return Loop

    class Loop(Event):
        lane: int
        speed: Maybe[float]

    return first(), Loop


@pytest.fixture
def file(tmp_path: Path) -> CatalogFile:
    made = CatalogFile(LocalFileSystem(), str(tmp_path / "lake"))
    made.register([Bell])
    return made


def test_known_types_are_registered_again_without_parsing_the_catalog(
    file: CatalogFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the file changes, whoever changes it."""
    old, new = loops()
    assert file.register([Bell, old])
    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "parse", lambda text: pytest.fail("parsed again"))
        assert not file.register([old, Bell])
    assert file.register([new]).gained == {"Loop": ("speed",)}
    Catalog.update(file.path, Chime)
    assert not file.register([new, Chime])


@pytest.mark.filterwarnings("ignore::genus.errors.SubscriptionWarning")
def test_a_rebound_subscription_equals_the_one_parsed_from_its_text() -> None:
    """Binding a predicate to the classes that the catalog declares keeps its meaning, for predicates of every form."""
    catalog = Catalog()
    catalog.register(*TYPES)
    resolver = SubscriptionResolver(catalog)
    declared = [catalog.declare(name, generated=True) for name in catalog.types]
    for given in Generator(7).subscriptions(500):
        rebound = resolver._rebind(given)
        assert rebound == Subscription.parse(str(given), declared)
        assert all(cls in declared for cls in rebound.types)


def test_types_and_attributes_that_the_catalog_lacks_are_refused() -> None:
    """The error names the type or the attribute."""
    old, new = loops()
    catalog = Catalog()
    catalog.register(old)
    resolver = SubscriptionResolver(Catalog.parse(catalog.text()))
    with pytest.raises(NotRegistered, match="Bell"):
        resolver.resolve(Bell)
    with pytest.raises(NotRegistered, match=r"Loop\.speed"):
        resolver.resolve(Subscription(new, where=this.speed > 3))


def test_a_catalog_that_extends_the_present_one_is_adopted(file: CatalogFile, tmp_path: Path) -> None:
    """Codes and bits are then those of the given file; adopting it again changes nothing."""
    other = Catalog.load(Path(file.path))
    other.register(Chime)
    other.save(tmp_path / "other.json")
    file.adopt(tmp_path / "other.json")
    assert file.catalog.code(Chime) == other.code(Chime)
    text = file.text
    file.adopt(tmp_path / "other.json")
    assert file.text == text


def test_a_catalog_without_types_of_the_present_one_is_refused(file: CatalogFile, tmp_path: Path) -> None:
    """Nothing is changed, and the error names both files."""
    other = Catalog()
    other.register(Chime)
    other.save(tmp_path / "other.json")
    text = file.text
    with pytest.raises(CatalogConflict, match=r"other\.json lacks types of .*catalog\.json"):
        file.adopt(tmp_path / "other.json")
    assert file.text == text


def test_a_text_that_names_one_type_declares_no_others() -> None:
    """Opening a lake of many types is quick; attributes of subtypes are known all the same."""
    catalog = Catalog()
    catalog.register(*TYPES)
    parsed = Catalog.parse(catalog.text())
    declared: list[str] = []
    original = parsed.declare

    def declare(name: str, *, generated: bool = False) -> type:
        declared.append(name)
        return original(name, generated=generated)

    parsed.declare = declare  # type: ignore[method-assign]
    assert SubscriptionResolver(parsed, declares_subtypes=False).resolve("Bell has time").has == ("time",)
    assert declared == ["Bell"]
    assert SubscriptionResolver(parsed, declares_subtypes=False).resolve("Sampler has extra").has == ("extra",)
    assert "MarkedSampler" in declared
