// The shell: chooses the view by the address (#channels?of=...), and connects it with the store.
import { Store, Stream } from "./store.js";
import { h, clear, remember, setText, setAttribute } from "./components/dom.js";
import { plural, since } from "./components/format.js";
import { setDocs } from "./terms.js";
import { mountSources } from "./views/sources-bar.js";
import { soundAlerts } from "./views/event-alerts.js";

const ALWAYS = ["sources", "problems"];
const ASK_AGAIN_MS = 1000;
const FRESH_MS = 5000;
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
class ServerError extends Error {}

async function read(response) {
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new ServerError(body?.message ?? `the server answered ${response.status}`);
  return body;
}

const pathOf = (path) => (path.startsWith("/") ? path : `/api/${path}`);

/** Ask the server; one that is away is asked again until it answers. */
async function api(path) {
  for (;;) {
    try {
      return await read(await fetch(pathOf(path)));
    } catch (error) {
      if (error instanceof ServerError) throw error;
    }
    await new Promise((done) => setTimeout(done, ASK_AGAIN_MS));
  }
}

async function post(path, body) {
  const headers = { "Content-Type": "application/json", "X-Genus-Studio": "1" };
  return read(await fetch(pathOf(path), { method: "POST", headers, body: JSON.stringify(body) }).catch(() => { throw new Error("the server does not answer"); }));
}

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
    sse: (path, handlers, onState) => new Stream(pathOf(path), handlers, onState),
    href: writeAddress,
    /** Remember something in the address without leaving the view. */
    setParams: (values) => history.replaceState(null, "", writeAddress(id, Object.assign(params, values))),
  };
}

// Showing a view
async function show() {
  const { id, params } = readAddress();
  if (!VIEWS.some((view) => view.id === id)) return id ? undefined : history.replaceState(null, "", `#${config.layout?.view ?? "overview"}`) ?? show();
  const mine = ++visit;
  leave();
  markChosen(id);
  let view;
  try {
    view = (await import(`./views/${id}.js`)).default;
  } catch (error) {
    if (mine !== visit) return;
    const [{ type }] = performance.getEntriesByType("navigation");
    if (type === "reload" && performance.now() < FRESH_MS) return fail(id, error); // loading it again did not help
    fail(id, error, "Its files do not come. It is shown as soon as the server answers.");
    await api("config");
    return mine === visit ? location.reload() : undefined; // a browser never asks again for a module that did not come
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

function fail(id, error, words = `This view cannot be shown: ${error.message}`) {
  console.error(error);
  const root = clear(byId("main"));
  root.append(h("h1", {}, VIEWS.find((view) => view.id === id)?.title ?? id), h("p", { class: "empty" }, words));
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
  clear(list).append(...wanted.map((view) => h("li", {}, h("a", { href: `#${view.id}`, "data-view": view.id, title: `Keys: g ${view.key}` },
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
  soundAlerts(fresh, config);
  if (fresh.length) setText(byId("announce"), fresh.length > 3 ? `${fresh.length} new problems` : fresh.map((key) => `New problem: ${problems.get(key).what}`).join(". "));
}

// The state of the connection
const STATES = {
  connecting: () => ["◌", "connecting"],
  live: () => ["●", "live"],
  polling: () => ["◐", "live, every 2 s"], // other windows of this browser have the streams
  reconnecting: () => ["◌", "reconnecting"],
  gone: (from) => ["✕", `no data since ${since(from)} UTC: the server is gone`],
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
    const filter = byId("main").querySelector("[data-filter], [role=combobox]");
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
  const key = (text) => h("kbd", {}, text);
  clear(byId("help-views")).append(...VIEWS.filter(isListed).map((view, place) => h("li", {}, h("span", {}, key("g"), key(view.key), place < 10 && ["or", key((place + 1) % 10)]), h("span", {}, view.title))));
  byId("help-keys").checked = areKeysOn();
  byId("help").showModal();
}

async function start() {
  const { id } = readAddress();
  import(`./views/${VIEWS.some((view) => view.id === id) ? id : "overview"}.js`).catch(() => {}); // loads while the server is asked
  store.watch(ALWAYS);
  const asked = api("config").then((answer) => {
    config = answer;
    setDocs(config.docs);
    setText(byId("title"), config.title || "Studio");
    setText(byId("version"), config.version);
    Object.assign(byId("docs"), { href: config.docs, hidden: !config.docs });
    setTitle();
  }).catch((error) => console.error(error)); // it refuses: the view says why
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
  byId("help-close").addEventListener("click", () => byId("help").close());
  byId("help-keys").addEventListener("change", (event) => remember("genus-keys", event.target.checked ? "on" : "off"));
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
