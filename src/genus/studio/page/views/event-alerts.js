// Alerts: subscriptions that the server keeps; their events are problems. The browser can sound when one begins.
import { h, remember } from "../components/dom.js";
import { count, plural } from "../components/format.js";
import { showPopover } from "./popover.js";

const SOUND_KEY = "genus-sound";
const [BEEP_HZ, BEEP_S] = [660, 0.25];

const isSoundOn = (config) => (remember(SOUND_KEY) ?? (config.layout?.sound ? "on" : "off")) === "on";

/** Sound once if some of these new problems are of alerts, and sound is on. Browsers allow it after a click on the page. */
export function soundAlerts(keys, config) {
  if (isSoundOn(config) && keys.some((key) => /\|alerts\|\d+$/.test(key))) beep();
}

function beep() {
  const audio = new AudioContext(), tone = audio.createOscillator(), volume = audio.createGain();
  volume.gain.setValueAtTime(0.2, audio.currentTime);
  volume.gain.exponentialRampToValueAtTime(0.001, audio.currentTime + BEEP_S);
  tone.frequency.value = BEEP_HZ;
  tone.connect(volume).connect(audio.destination);
  tone.onended = () => audio.close();
  tone.start();
  tone.stop(audio.currentTime + BEEP_S);
}

/**
 * Show the alerts below a button, with a form that keeps a subscription as another one. `text()` gives the subscription,
 * `sources` the chosen ones; `say(text)` tells what came of it.
 */
export function showAlerts(button, ctx, { text, sources, say }) {
  const name = h("input", { class: "input", "aria-label": "name of the alert", placeholder: "name", maxlength: "100" });
  const severity = h("select", { class: "input", "aria-label": "severity" }, h("option", { value: "warn" }, "warning"), h("option", { value: "bad" }, "error"));
  const sound = h("input", { type: "checkbox", onchange: (event) => { remember(SOUND_KEY, event.target.checked ? "on" : "off"); if (event.target.checked) beep(); } });
  sound.checked = isSoundOn(ctx.config);
  const send = async (body, done) => {
    close();
    try {
      await ctx.post("alerts", body);
      say(done);
    } catch (problem) {
      say(`✗ ${problem.message}`);
    }
  };
  const add = (event) => {
    event.preventDefault();
    send({ action: "add", text: text(), severity: severity.value, name: name.value.trim(), sources: [...sources] }, "Kept as an alert: its events are problems in Overview.");
  };
  const close = showPopover(button, "Alerts", [
    h("form", { class: "alert-form", onsubmit: add }, h("p", {}, "Keep it, and each event that matches is a problem: ", h("code", {}, text()), sources.size ? ` on ${[...sources].join(", ")}` : ""),
      h("div", { class: "toolbar" }, name, severity, h("button", { class: "button primary" }, "Keep as alert"))),
    h("ul", { class: "alert-list" }, [...ctx.store.rows("alerts")].map(([key, row]) => h("li", {},
      h("span", { class: `sign ${row.is_active ? row.severity : ""}`, "aria-hidden": "true" }, row.is_active ? "●" : "○"),
      h("a", { href: ctx.href("events", { q: row.text, source: row.sources.join("|") }) }, row.name),
      h("small", {}, row.problem ? `does not run: ${row.problem}` : `${plural(row.matched, "event")} so far${row.unseen ? `, ${count(row.unseen)} not tested` : ""}${row.origin === "file" ? ", of the layout" : ""}`),
      h("button", { type: "button", class: "button small", "aria-label": `remove the alert ${row.name}`, onclick: () => send({ action: "remove", key }, "The alert was removed.") }, "✕")))),
    h("label", { class: "event-choice" }, sound, "sound in this browser when an alert begins"),
  ]);
}
