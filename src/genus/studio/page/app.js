// The shell: chooses the view by the address (#channels?of=...), and connects it with the store.
import { Store, Stream } from "./store.js";
import { h, clear, setText, setAttribute } from "./components/dom.js";
import { localTime, plural } from "./components/format.js";
import { setDocs } from "./terms.js";
import { mountSources } from "./views/sources-bar.js";

const ALWAYS = ["sources", "problems"];
const has = (test) => (store) => [...store.rows("sources").values()].some(test);
const VIEWS = [
  { id: "overview", title: "Overview", key: "o" },
  { id: "types", title: "Types", key: "t" },
  { id: "channels", title: "Channels", key: "c" },
  { id: "subscriptions", title: "Subscriptions", key: "s" },
  { id: "nodes", title: "Nodes", key: "n" },
  { id: "gateways", title: "Gateways", key: "g", isShown: has((row) => row.kind === "gateway") },
  { id: "can", title: "CAN bus", key: "b", isShown: has((row) => row.has_timeline) },
  { id: "events", title: "Events", key: "e" },
  { id: "plot", title: "Plot", key: "p" },
  { id: "lake", title: "Lake", key: "l", isShown: has((row) => row.kind === "lake") },
];
const byId = (id) => document.getElementById(id);
const store = new Store();
let config = { title: "", version: "", allow_publish: false, docs: "", tables: [] };
let shown = { id: "", view: null, mounted: null };
let visit = 0;

// What the server is asked
class ServerError extends Error {
  constructor(status, body) {
    super(body?.message ?? `the server answered ${status}`);
    this.status = status;
    this.body = body;
  }
}

async function request(path, options) {
  const response = await fetch(path, options);
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new ServerError(response.status, body);
  return body;
}

const api = (path) => request(path.startsWith("/") ? path : `/api/${path}`);
const post = (path, body) => request(path.startsWith("/") ? path : `/api/${path}`, {
  method: "POST", headers: { "Content-Type": "application/json", "X-Genus-Studio": "1" }, body: JSON.stringify(body),
});

// The address of a view
function readAddress() {
  const [id, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  return { id, params: Object.fromEntries(new URLSearchParams(query)) };
}

function writeAddress(id, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return `#${id}${query.size ? `?${query}` : ""}`;
}

const go = (id, params) => { location.hash = writeAddress(id, params); };

function makeContext(id, params) {
  return {
    store, api, post, go, params,
    get config() { return config; },
    sse: (path, handlers, onState) => new Stream(path.startsWith("/") ? path : `/api/${path}`, handlers, onState),
    href: writeAddress,
    /** Remember something in the address without leaving the view. */
    setParams: (values) => history.replaceState(null, "", writeAddress(id, Object.assign(params, values))),
  };
}

// Showing a view
async function show() {
  const { id, params } = readAddress();
  if (!VIEWS.some((view) => view.id === id)) return id ? undefined : history.replaceState(null, "", "#overview") ?? show();
  const mine = ++visit;
  leave();
  markChosen(id);
  let view;
  try {
    view = (await import(`./views/${id}.js`)).default;
  } catch (error) {
    return mine === visit ? fail(id, error) : undefined;
  }
  if (mine === visit) enter(id, view, params);
}

function leave() {
  try {
    shown.mounted?.unmount?.();
  } catch (error) {
    console.error(error);
  }
  shown = { id: "", view: null, mounted: null };
}

function enter(id, view, params) {
  const root = clear(byId("main"));
  root.className = `view view-${id}`;
  root.append(h("h1", { class: "view-title" }, view.title));
  store.watch([...ALWAYS, ...view.tables]);
  scrollTo(0, 0);
  try {
    shown = { id, view, mounted: view.mount(root, makeContext(id, params)) };
  } catch (error) {
    fail(id, error);
  }
  setTitle();
}

function fail(id, error) {
  console.error(error);
  const root = clear(byId("main"));
  root.append(h("h1", {}, VIEWS.find((view) => view.id === id)?.title ?? id), h("p", { class: "empty" }, `This view cannot be shown: ${error.message}`));
}

function update(changes) {
  if (changes.sources) drawViews();
  if (changes.problems) noteProblems();
  try {
    shown.mounted?.update?.(changes);
  } catch (error) {
    leave();
    fail(readAddress().id, error);
  }
}

// The list of views
const isListed = (view) => !view.isShown || view.isShown(store) || view.id === readAddress().id;

function drawViews() {
  const wanted = VIEWS.filter(isListed), list = byId("views");
  if (wanted.map((view) => view.id).join() === list.dataset.views) return;
  list.dataset.views = wanted.map((view) => view.id).join();
  clear(list).append(...wanted.map((view) => h("li", {}, h("a", { href: `#${view.id}`, dataset: { view: view.id }, title: `Keys: g ${view.key}` },
    h("span", {}, view.title), view.id === "overview" && h("span", { class: "badge", id: "problem-count", hidden: true })))));
  markChosen(readAddress().id);
  noteProblems();
}

function markChosen(id) {
  for (const link of byId("views").querySelectorAll("a")) {
    const isChosen = link.dataset.view === id;
    setAttribute(link, "aria-current", isChosen ? "page" : null);
    const list = link.closest(".views");
    if (isChosen && list.scrollWidth > list.clientWidth) link.scrollIntoView({ block: "nearest", inline: "center" });
  }
}

function setTitle() {
  const number = store.rows("problems").size;
  document.title = `${number ? `(${number}) ` : ""}${shown.view?.title ?? "Studio"} – ${config.title || "Genus Studio"}`;
}

// Problems are counted beside the overview, and new ones are said to screen readers.
let knownProblems = null;

function noteProblems() {
  const problems = store.rows("problems"), badge = byId("problem-count");
  if (badge) {
    const isBad = [...problems.values()].some((row) => row.severity === "bad");
    badge.hidden = !problems.size;
    badge.className = `badge ${isBad ? "bad" : "warn"}`;
    setText(badge, String(problems.size));
    setAttribute(badge, "aria-label", plural(problems.size, "problem"));
  }
  setTitle();
  if (!store.has("problems")) return;
  const fresh = knownProblems ? [...problems.keys()].filter((key) => !knownProblems.has(key)) : [];
  knownProblems = new Set(problems.keys());
  if (fresh.length) say(fresh.length > 3 ? `${fresh.length} new problems` : fresh.map((key) => `New problem: ${problems.get(key).what}`).join(". "));
}

let lastSaid = 0;
let toSay = "";

function say(text) {
  toSay = text;
  const wait = Math.max(0, lastSaid + 3000 - performance.now());
  setTimeout(() => {
    if (!toSay) return;
    lastSaid = performance.now();
    setText(byId("announce"), toSay);
    toSay = "";
  }, wait);
}

// The state of the connection
const STATES = {
  connecting: () => ["◌", "connecting"],
  live: () => ["●", "live"],
  polling: () => ["◐", "live, every 2 s"], // other windows of this browser have the streams
  reconnecting: () => ["◌", "reconnecting"],
  gone: (since) => ["✕", `the server is gone since ${localTime(since)}`],
  hidden: () => ["❚❚", "paused"],
};

function drawStatus({ state, since }) {
  const [sign, text] = STATES[state](since), status = byId("status");
  status.dataset.state = state;
  clear(status).append(h("span", { class: "sign", "aria-hidden": "true" }, sign), " ", text);
  document.body.classList.toggle("stale", state === "gone" || state === "reconnecting");
}

// Light or dark
const scheme = matchMedia("(prefers-color-scheme: dark)");
const root = document.documentElement;
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : scheme.matches);

function drawTheme() {
  setText(byId("theme"), isDark() ? "☀ Light" : "☾ Dark");
  setAttribute(byId("theme"), "aria-label", isDark() ? "change to light colours" : "change to dark colours");
  dispatchEvent(new Event("genus-theme")); // canvases have to be drawn again
}

function remember(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch { return null; } // a browser may forbid it
}

// Keys
let firstKey = "";
let firstKeyAt = 0;
const areKeysOn = () => remember("genus-keys") !== "off";
const isTyping = (target) => target.closest?.("input:not([type=range], [type=checkbox]), textarea, select, [contenteditable]");

function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || byId("help").open || isTyping(event.target)) return;
  if (event.key === "?") return prevent(event, openHelp);
  if (!areKeysOn()) return;
  const isSecond = firstKey === "g" && performance.now() - firstKeyAt < 1500;
  firstKey = "";
  const listed = VIEWS.filter(isListed);
  if (isSecond) {
    const view = listed.find((one) => one.key === event.key);
    if (view) return prevent(event, () => visitView(view.id));
  } else if (event.key === "g") {
    [firstKey, firstKeyAt] = ["g", performance.now()];
  } else if (event.key === "/") {
    const filter = byId("main").querySelector("[data-filter], input[type=search], [role=combobox]");
    if (filter) prevent(event, () => { filter.focus(); filter.select?.(); });
  } else if (/^[0-9]$/.test(event.key) && listed[(Number(event.key) + 9) % 10]) {
    prevent(event, () => visitView(listed[(Number(event.key) + 9) % 10].id));
  }
}

function visitView(id) {
  go(id);
  byId("main").focus({ preventScroll: true });
}

function prevent(event, action) {
  event.preventDefault();
  action();
}

function openHelp() {
  const help = byId("help"), listed = VIEWS.filter(isListed);
  const line = (keys, words) => h("li", {}, h("span", {}, keys.map((key) => (key === "or" ? key : h("kbd", {}, key)))), h("span", {}, words));
  const keys = h("input", { type: "checkbox", onchange: (event) => remember("genus-keys", event.target.checked ? "on" : "off") });
  keys.checked = areKeysOn();
  clear(help).append(
    h("h2", { id: "help-title" }, "Keys"),
    h("ul", { class: "keys" },
      listed.map((view, place) => line(["g", view.key, ...(place < 10 ? ["or", String((place + 1) % 10)] : [])], view.title)),
      line(["/"], "to the filter, or to the subscription"), line(["↑", "↓"], "from row to row of a table"),
      line(["Enter"], "open or close a row"), line(["Esc"], "clear the filter, close a list"), line(["?"], "this help")),
    h("label", { class: "field" }, keys, "single letters and numbers are keys"),
    h("p", { class: "note" }, `Genus Studio ${config.version}. `, config.docs && h("a", { href: config.docs, target: "_blank", rel: "noopener" }, "Documentation"),
      config.docs && ". ", "The same data as JSON: ", h("a", { href: "/api/sources" }, "/api/sources"), " and all other tables."),
    h("form", { method: "dialog" }, h("button", { class: "button", onclick: (event) => { event.preventDefault(); help.close(); } }, "Close")),
  );
  help.showModal();
}

async function start() {
  const { id } = readAddress();
  import(`./views/${VIEWS.some((view) => view.id === id) ? id : "overview"}.js`).catch(() => {}); // loads while the server is asked
  store.watch(ALWAYS);
  const asked = api("config").then((answer) => {
    config = answer;
    setDocs(config.docs);
    setText(byId("title"), config.title || "Studio");
    setTitle();
  }).catch((error) => console.error(error));
  drawStatus(store.status);
  drawViews();
  drawTheme();
  store.onStatus(drawStatus);
  store.onChanges(update);
  mountSources(byId("sources"), makeContext("sources", {}));
  addEventListener("hashchange", show);
  document.addEventListener("keydown", onKey);
  scheme.addEventListener("change", drawTheme);
  byId("help-open").addEventListener("click", openHelp);
  byId("skip").addEventListener("click", (event) => prevent(event, () => byId("main").focus()));
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember("genus-theme", root.dataset.theme);
    drawTheme();
  });
  await asked;
  show();
}

start();
