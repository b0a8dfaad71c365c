// The words of Genus: what each means, in a line, and where the documentation says more.
import { h } from "./components/dom.js";

let docs = "";

/** The address below which the pages of the documentation are, or "". */
export function setDocs(address) {
  docs = address && !address.endsWith("/") ? `${address}/` : address || "";
}

/** What a word means, in a line; "" if it is not known. */
export function explain(name) {
  return TERMS[name]?.[1] ?? "";
}

/** The address of the documentation of a word, or null. */
export function docsOf(name) {
  return docs && TERMS[name] ? docs + TERMS[name][0] : null;
}

/** A word as a link to the documentation; without one, a word with its explanation as a tip. */
export function term(name, text = name) {
  const [address, note] = [docsOf(name), explain(name)];
  if (address) return h("a", { class: "term", href: address, target: "_blank", rel: "noopener", title: note }, text);
  return note ? h("span", { class: "term", title: note }, text) : document.createTextNode(text);
}

// Page and anchor, and what it means.
const TERMS = {
  "acceptance filter": ["targets/#acceptance-filters", "A value and a mask: the CAN controller takes a frame if all compared bits are equal."],
  "active": ["gateways/#two-gateways-one-active", "Of two gateways between the same networks, one is active and the other stands by."],
  "arbitration": ["can/", "If two nodes begin to send at once, the frame with the lower identifier goes on."],
  "attribute": ["concepts/#is-has-says", "A named, typed field of an event type."],
  "behind": ["lake-ingest/#streams", "Commits of the lake that it has not taken yet."],
  "bound": ["can-planning/", "The latency that the plan of the bus promises at most."],
  "bus load": ["can-planning/", "The share of time in which the CAN bus is busy."],
  "bus off": ["can-live/#what-happens-on-the-bus-and-what-is-told", "The controller had too many errors and takes no part until it is started again."],
  "channel": ["concepts/#event-channels-and-their-classes", "Carries the events of one type with a quality of service."],
  "code": ["codes/", "A type's product of primes: divisible by the codes of all types above it."],
  "commit": ["lake/#what-the-columns-are", "A numbered change of a lake: it says which files are valid."],
  "crossed": ["gateways/", "Events that a gateway took from one network to the other."],
  "deadline": ["can-planning/#soft-earliest-deadline-first", "The time until which an event should have arrived."],
  "delivered": ["bus/#collections", "Events that matched the subscription and were given to its handler or inbox."],
  "dropped": ["bus/#collections", "Events that were thrown away because the queue was full."],
  "duplicates": ["gateways/#each-event-once", "Events that came again and were left out."],
  "error passive": ["can-planning/#senders-that-are-error-passive", "The controller had many errors, and waits longer between frames."],
  "event": ["concepts/#is-has-says", "What was published: a type, its attributes and their values."],
  "event tag": ["codes/#event-tags", "The 14-bit number of a type on a CAN bus; all types below a type lie in its blocks."],
  "expired": ["can/#problems", "Events that were still waiting to be sent when they expired."],
  "failed": ["bus/#collections", "Events for which the handler raised an exception."],
  "family": ["concepts/#family-vector-presence-bits", "A root type and all below it: the scope in which an attribute name has one type."],
  "follower": ["lake-ingest/#streams", "Processes the new events of a lake, once per version."],
  "frame": ["can/", "What is sent on a CAN bus at once: an identifier of 29 bits and up to 8 bytes."],
  "gateway": ["gateways/", "Connects networks and lets cross what is wanted on the other side."],
  "hard": ["can-planning/#hard-slots", "Events with reserved slots, delivered exactly at the end of the slot."],
  "jitter": ["operations/#what-to-watch", "Standard deviation of the time between two events."],
  "kind": ["concepts/#is-has-says", "An event type without attributes, used as an interface."],
  "lake": ["lake/", "A folder of typed tables that Spark reads, one per family."],
  "late": ["operations/#what-to-watch", "Deadlines that were missed, and events that expired."],
  "latency": ["operations/#what-to-watch", "Time from publishing to arrival."],
  "limited": ["gateways/#what-may-cross", "Events that were held back as too many a second crossed."],
  "lost": ["networks/#once-or-reported-lost", "Events that are known to be lost, dropped or rejected."],
  "missed": ["can/#problems", "Events that were not there at their deadline."],
  "node": ["can/", "A participant of a CAN bus or of a network."],
  "none": ["can-planning/#none-fixed-priorities-and-the-middleware", "Events without a promise about time: they use the time that is left."],
  "offset": ["wire/#time", "How far the clock of a node is off the time of the bus, in a simulation."],
  "out of scope": ["gateways/#what-may-cross", "Events that the rules of the gateway do not let cross."],
  "precision": ["wire/#time", "A bound on how far the clock of a node is off the time of the bus."],
  "publisher": ["bus/", "Who publishes it: a node, a participant, or this process."],
  "quality of service": ["can/", "What an event channel promises about time: hard, soft or none."],
  "queue": ["bus/#collections", "Events that wait for the handler or in the inbox, and how many fit."],
  "rate": ["operations/#what-to-watch", "Events a second, of the last second."],
  "residual": ["targets/#what-each-can-do", "The part of a subscription that a target cannot test; the receiver tests it."],
  "slot": ["can-planning/#hard-slots", "The time that a calendar reserves for a hard channel."],
  "soft": ["can-planning/#soft-earliest-deadline-first", "Events that are sent in the order of their deadlines."],
  "source": ["bus/", "What Studio looks at: a bus, a world, a recording, a lake or a gateway."],
  "spooled": ["gateways/#links-that-go-down", "Events that are kept on disk until the other side is there again."],
  "standing by": ["gateways/#two-gateways-one-active", "Of two gateways between the same networks, the one that waits."],
  "subscription": ["subscriptions/", "What an event must be, have and say."],
  "target": ["targets/", "Where a subscription is compiled to run."],
  "type": ["concepts/#is-has-says", "A class below Event."],
  "unwanted": ["gateways/#interest-flows-upstream", "Events that nobody on the other side asked for."],
  "vector": ["concepts/#family-vector-presence-bits", "A family's list of attributes, in the order in which they were declared."],
  "wanted": ["gateways/#interest-flows-upstream", "Subscriptions of the other side."],
  "wants": ["networks/#who-is-there-and-what-is-wanted", "Types and subscriptions that it asked for."],
};
