// The page of the router. It reads the same API as `ribtide show`, and changes nothing.
// Texts of peers and of the configuration reach the page as text only, never as markup.
const PERIOD_MS = 1000;
// Points of a stage's curve, one each period.
const HISTORY = 120;
// Periods between two reads of the open tab and of the summary.
const SLOW = 3;

const $ = (id) => document.getElementById(id);

/** An element with attributes and children; a string child is text. */
function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== ""));
  return element;
}

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const count = (n) => whole.format(n);

/** A number of few digits: 1.24 M, 18.3 k, 999. */
function short(n) {
  if (n >= 1e6) return `${(n / 1e6).toPrecision(3)} M`;
  if (n >= 1e4) return `${(n / 1e3).toPrecision(3)} k`;
  return count(n);
}

function duration(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const at = units.findIndex(([, size]) => seconds >= size);
  if (at < 0) return "0 s";
  const [unit, size] = units[at];
  const rest = units[at + 1];
  const more = rest && Math.floor((seconds % size) / rest[1]);
  return `${Math.floor(seconds / size)} ${unit}${more ? ` ${more} ${rest[0]}` : ""}`;
}

const mebibytes = (bytes) => `${count(bytes / 1048576)} MiB`;
const sum = (object) => Object.values(object ?? {}).reduce((all, n) => all + n, 0);

/** The token that the visitor has given, of this tab alone. */
let token = sessionStorage.getItem("token");

/** What the API answers. Throws the sentence of its refusal. */
async function api(path) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  const reply = await fetch(path, { headers, cache: "no-store" });
  const text = await reply.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    throw new Error(`the router answered ${reply.status} without JSON`);
  }
  if (!reply.ok) {
    const error = new Error(answer.error ?? `the router answered ${reply.status}`);
    error.status = reply.status;
    if (reply.status === 401) $("access").hidden = false;
    throw error;
  }
  // A reply to an earlier token may have come after this one was given.
  if (token) $("access").hidden = true;
  return answer;
}

function table(columns, rows, empty) {
  if (rows.length === 0) return el("p", { class: "dim" }, empty);
  const cell = (name, column, content, scope) =>
    el(name, { class: column.number ? "number" : undefined, scope }, content ?? "");
  const head = el("tr", {}, ...columns.map((column) => cell("th", column, column.title, "col")));
  const body = rows.map((row) => el("tr", {}, ...columns.map((column) => {
    const value = column.of(row);
    return cell("td", column, typeof value === "number" ? count(value) : value);
  })));
  return el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...body)));
}

// --- The way of routes -----------------------------------------------------------------------------------------------

/** The last reading of the pipeline, its time in seconds, and the rates of each stage. */
const former = { time: 0, stages: new Map(), rings: new Map() };
const rates = new Map();

/** Rates between two readings; a router that started again begins again. */
function measure(pipeline) {
  const time = performance.now() / 1000;
  const elapsed = time - former.time;
  const first = former.time === 0;
  for (const stage of pipeline.stages) {
    const was = former.stages.get(stage.name);
    const known = !first && was && was.routes <= stage.routes;
    const entry = rates.get(stage.name) ?? { history: [], busy: 0 };
    entry.rate = known ? (stage.routes - was.routes) / elapsed : 0;
    entry.busy = known ? Math.max(0, stage.busy_seconds - was.busy_seconds) / elapsed : 0;
    if (known) entry.history.push(entry.rate);
    if (entry.history.length > HISTORY) entry.history.shift();
    rates.set(stage.name, entry);
  }
  for (const ring of pipeline.rings) {
    const was = former.rings.get(ring.name);
    ring.rate = !first && was && was.sent <= ring.sent ? (ring.sent - was.sent) / elapsed : 0;
  }
  former.time = time;
  former.stages = new Map(pipeline.stages.map((stage) => [stage.name, stage]));
  former.rings = new Map(pipeline.rings.map((ring) => [ring.name, ring]));
}

function curve(history) {
  const svgName = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(svgName, "svg");
  svg.setAttribute("viewBox", `0 0 ${HISTORY - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(svgName, "polyline");
  const top = Math.max(1, ...history);
  const left = HISTORY - history.length;
  line.setAttribute("points", history.map((rate, at) => `${left + at},${98 - (94 * rate) / top}`).join(" "));
  svg.append(line);
  return svg;
}

function stageCard(stage) {
  const { rate = 0, busy = 0, history = [] } = rates.get(stage.name) ?? {};
  return el("article", { class: "stage", "data-stage": stage.name },
    el("h3", {}, stage.name),
    el("div", { class: "rate" }, short(rate), el("span", { class: "small" }, " routes/s")),
    curve(history),
    el("div", { class: "small" }, `peak ${short(Math.max(0, ...history))}/s`),
    el("div", { class: "small" }, `${count(stage.routes)} in all`),
    el("div", { class: "small" }, `${Math.round(100 * busy)}% of a CPU`));
}

/** An arrow for all queues of a pattern. By Little's law a batch waits for depth over rate. */
function arrow(rings, pattern, title) {
  const of = rings.filter((ring) => pattern.test(ring.name));
  if (of.length === 0) return el("div", { class: "queue" }, el("span", { class: "arrow" }, "→"));
  const add = (field) => of.reduce((all, ring) => all + ring[field], 0);
  const [depth, capacity, rate] = [add("depth"), add("capacity"), add("rate")];
  const wait = depth > 0 && rate > 0 ? `about ${short((1000 * depth) / rate)} ms` : "";
  const meter = el("meter", { min: 0, max: capacity, value: depth, high: capacity * 0.9, "aria-label": title });
  return el("div", { class: "queue", title: of.map((ring) => ring.name).join("\n") },
    el("span", { class: "arrow", "aria-hidden": "true" }, "→"), meter,
    el("span", {}, `${count(depth)} of ${count(capacity)}`, el("br"), wait));
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

function showWay(pipeline, withBgp) {
  const stages = new Map(pipeline.stages.map((stage) => [stage.name, stage]));
  const chain = (...parts) => el("div", { class: "row" }, ...parts);
  const card = (name) => (stages.has(name) ? stageCard(stages.get(name)) : undefined);
  const link = (pattern, title) => arrow(pipeline.rings, pattern, title);
  const rows = [];
  const main = [];
  if (withBgp) {
    main.push(card("reader"), link(/^readers to shard/, "from readers to shards"), card("shard"));
  }
  if (stages.has("rib")) {
    if (main.length) main.push(link(/^shards to RIB/, "from shards to the RIB manager"));
    main.push(card("rib"));
  }
  const plane = /^RIB to (.*?)(, urgent)?$/;
  const planes = [...new Set(pipeline.rings.map((ring) => plane.exec(ring.name)?.[1]).filter(Boolean))];
  const sonic = ["fpmsyncd", "orchagent", "syncd"].every((name) => stages.has(name));
  const branches = planes.map((name) => {
    const enter = link(new RegExp(`^RIB to ${escaped(name)}(, urgent)?$`), `from the RIB manager to ${name}`);
    if (stages.has(name)) return [enter, card(name)];
    if (!sonic) return [];
    return [enter, card("fpmsyncd"), link(/ROUTE_TABLE$/, "from fpmsyncd to orchagent"), card("orchagent"),
      link(/orchagent to syncd$/, "from orchagent to syncd"), card("syncd")];
  }).filter((branch) => branch.length);
  // The daemons of SONiC count for all virtual ASICs together, so one row stands for all.
  const distinct = branches.filter((branch, at) =>
    branch.length < 3 || branches.findIndex((other) => other.length > 2) === at);
  if (distinct.length === 1) main.push(...distinct[0]);
  if (main.length) rows.push(chain(...main));
  if (distinct.length > 1) rows.push(...distinct.map((branch) => chain(el("div", { class: "queue" }, "rib"), ...branch)));
  if (withBgp) {
    rows.push(chain(el("div", { class: "queue" }, "shard"), link(/^shards to worker/, "from shards to update threads"),
      card("egress"), link(/^workers to sessions/, "from update threads to sessions"),
      el("div", { class: "queue" }, "neighbors")));
  }
  $("way").replaceChildren(...rows);
}

function showWaits(pipeline, health) {
  const items = [];
  for (const stall of health.stalls) {
    const behind = stall.behind ? `, behind ${stall.behind}` : "";
    items.push(el("li", { class: "bad" }, `${stall.what}: no progress for ${duration(stall.seconds)}${behind}`));
  }
  for (const fault of health.faults ?? []) items.push(el("li", { class: "bad" }, `${fault.what}: ${fault.why}`));
  const full = pipeline.rings.filter((ring) => ring.depth >= ring.capacity);
  for (const ring of full) items.push(el("li", { class: "warn" }, `${ring.name} is full: its producers wait`));
  for (const gauge of (pipeline.gauges ?? []).filter((gauge) => gauge.depth > 0)) {
    items.push(el("li", {}, `${count(gauge.depth)} ${gauge.name}`));
  }
  $("waits").replaceChildren(items.length ? el("ul", {}, ...items) : el("p", { class: "dim" }, "Nothing waits."));
}

function showRouter(summary, health, pipeline) {
  const bgp = summary
    ? `AS ${summary.asn}, router id ${summary.router_id}, up ${duration(summary.uptime_seconds)}; ` +
      `${count(summary.established)} of ${count(summary.neighbor_count)} neighbors established; ` +
      `${count(sum(summary.prefixes))} prefixes, ${count(sum(summary.paths))} paths; `
    : "";
  $("router").textContent = `${bgp}${mebibytes(pipeline.peak_memory_bytes)} of memory at most`;
  $("router").className = "";
  const ok = health.state === "ok";
  $("health").textContent = ok ? "healthy" : "degraded";
  $("health").className = ok ? "good" : "bad";
}

// --- Details ---------------------------------------------------------------------------------------------------------

/** Cursors of the pages before the open one and of that itself, in order; the first page has none. */
const cursors = { neighbors: [], nexthops: [] };

function pager(list, next) {
  const path = cursors[list];
  const button = (text, enabled, act) => {
    const made = el("button", { type: "button" }, text);
    made.disabled = !enabled;
    made.addEventListener("click", () => { act(); showTab(); });
    return made;
  };
  if (path.length === 0 && !next) return undefined;
  return el("p", {}, button("First", path.length > 0, () => path.splice(0)), " ",
    button("Back", path.length > 0, () => path.pop()), " ", button("Next", Boolean(next), () => path.push(next)));
}

const at = (list) => (cursors[list].length ? `&cursor=${encodeURIComponent(cursors[list].at(-1))}` : "");

const text = (title, of) => ({ title, of });
const number = (title, of) => ({ title, of, number: true });

const tabs = {
  async neighbors() {
    const page = await api(`v1/bgp/neighbors?limit=100${at("neighbors")}`);
    const state = (n) => el("span", { class: n.state === "Established" ? "good" : "warn" }, n.state);
    return [table([
      text("Neighbor", (n) => n.address), text("AS", (n) => String(n.asn ?? "")), text("Group", (n) => n.group),
      text("State", state), text("Since", (n) => duration(n.state_seconds)),
      number("Accepted", (n) => sum(n.session?.accepted)), number("Active", (n) => sum(n.session?.active)),
      number("Advertised", (n) => sum(n.session?.advertised)), number("Flaps", (n) => n.flaps),
      text("Last error or description", (n) => n.last_error ?? n.description ?? ""),
    ], page.neighbors, "No neighbor is configured."), pager("neighbors", page.next)];
  },
  async groups() {
    const { groups } = await api("v1/bgp/groups");
    return [table([
      text("Group", (g) => g.id), text("Update thread", (g) => g.update_thread),
      text("Configured as", (g) => g.configured.join(", ")), number("Members", (g) => g.members.length),
      number("Waiting", (g) => g.waiting), number("UPDATEs", (g) => g.sent.updates),
      number("Announced", (g) => g.sent.announced), number("Withdrawn", (g) => g.sent.withdrawn),
      text("Settings", (g) => g.settings.join("; ")),
    ], groups, "No neighbor is established, so there is no update group.")];
  },
  async shards() {
    const { mode, shards } = await api("v1/routes/sharding");
    return [el("p", { class: "note" }, mode), table([
      text("Shard", (s) => s.thread), number("Prefixes", (s) => sum(s.routes.prefixes)),
      number("Paths", (s) => sum(s.routes.paths)), number("Attribute sets", (s) => s.attribute_sets),
      number("Share", (s) => `${(100 * s.load_share).toFixed(1)}%`), number("Memory", (s) => mebibytes(s.memory_bytes)),
      number("CPU s", (s) => s.cpu_seconds.toFixed(2)),
      number("Queue", (s) => `${s.inbox.depth} of ${s.inbox.capacity}`),
    ], shards, "BGP runs without shards.")];
  },
  async nexthops() {
    const page = await api(`v1/nexthop-groups?limit=50${at("nexthops")}`);
    const lines = (list) => el("span", {}, ...list.flatMap((line, i) => (i ? [el("br"), line] : [line])));
    return [table([
      number("Group", (g) => g.id), text("VRF", (g) => g.vrf), number("Routes", (g) => g.routes),
      text("Installed", (g) => (g.installed ? "yes" : el("span", { class: "warn" }, "no"))),
      text("Received", (g) => lines(g.received.map((hop) => (hop.through ? `${hop.hop} through ${hop.through}` : hop.hop)))),
      text("Resolved", (g) => (g.resolved.length ? lines(g.resolved) : el("span", { class: "bad" }, "unreachable"))),
    ], page.groups, "No route has a next-hop group."), pager("nexthops", page.next)];
  },
  async queues() {
    const { rings, gauges } = await api("v1/pipeline");
    const all = [...rings, ...(gauges ?? [])];
    return [table([
      text("Queue", (q) => q.name), number("Bound", (q) => q.capacity ?? q.bound ?? "–"), number("Depth", (q) => q.depth),
      number("Peak", (q) => q.peak), number("Batches", (q) => q.sent ?? "–"), number("Times full", (q) => q.full),
    ], all, "There is no queue.")];
  },
  async threads() {
    const { threads, cpus } = await api("v1/threads");
    return [el("p", { class: "note" }, `${cpus} CPUs; the share is of half a second just now.`), table([
      text("Thread", (t) => t.name), text("Work", (t) => t.role), number("CPU", (t) => `${t.cpu_percent.toFixed(0)}%`),
      number("CPU s", (t) => t.cpu_seconds.toFixed(2)), number("Waited for a CPU, s", (t) => t.waited_seconds.toFixed(2)),
      text("CPUs", (t) => t.cpus),
    ], threads, "There is no thread.")];
  },
  async timeline() {
    const lanes = (await api("v1/performance")).filter((lane) => lane.records.length);
    const note = el("p", { class: "note" }, "The latest records of PerformanceTimer, oldest first, each of 10,000 routes or " +
      "more. Width: duration. Height: rate, of the stage's fastest. Solid: the share of the time at work.");
    if (lanes.length === 0) return [note, el("p", { class: "dim" }, "No stage has had 10,000 routes yet.")];
    return [note, ...lanes.map(({ stage, records }) => {
      const top = Math.max(...records.map((record) => record["RPS[k]"]), 0.1);
      const bars = records.map((record) => {
        const at_work = el("i");
        const bar = el("span", { class: "bar", title: `${count(record.Tasks)} routes in ${count(record["Total[ms]"])} ms, ` +
          `at work ${count(record["busy[ms]"])} ms: ${record["RPS[k]"]} k routes/s` }, at_work);
        bar.style.flexGrow = Math.max(1, record["Total[ms]"]);
        bar.style.height = `${Math.max(4, (100 * record["RPS[k]"]) / top)}%`;
        at_work.style.height = `${(100 * record["busy[ms]"]) / Math.max(1, record["Total[ms]"])}%`;
        return bar;
      });
      return el("div", { class: "lane" }, el("span", {}, stage, el("br"), el("span", { class: "dim" }, `${top} k/s`)),
        el("div", { class: "bars" }, ...bars));
    })];
  },
};

const names = Object.keys(tabs);
let open = "neighbors";

function select(name, focus) {
  open = name;
  for (const other of names) {
    const tab = $(`tab-${other}`);
    tab.setAttribute("aria-selected", String(other === name));
    tab.tabIndex = other === name ? 0 : -1;
    $(other).hidden = other !== name;
  }
  if (focus) $(`tab-${name}`).focus();
  showTab();
}

async function showTab() {
  const name = open;
  let content;
  try {
    content = await tabs[name]();
  } catch (error) {
    content = [el("p", { class: "bad" }, error.message)];
  }
  // A reader may be in a page of the list, or have selected text of it.
  const selection = document.getSelection();
  if (!selection.isCollapsed && $(name).contains(selection.anchorNode)) return;
  $(name).replaceChildren(...content.filter((part) => part !== undefined));
}

// --- Search ----------------------------------------------------------------------------------------------------------

const SIGNS = { passed: ["✓", "good"], waiting: ["…", "warn"], stopped: ["✗", "bad"], absent: ["–", "dim"], off: ["○", "dim"] };

async function explain(prefix, vrf) {
  const target = $("explained");
  target.hidden = false;
  let parts;
  try {
    const within = vrf ? `&vrf=${encodeURIComponent(vrf)}` : "";
    const found = await api(`v1/explain?prefix=${encodeURIComponent(prefix)}${within}`);
    const inside = found.prefix && found.prefix !== found.query ? ` is in ${found.prefix}` : "";
    const steps = found.stages.map(({ stage, state, messages }) => {
      const [sign, kind] = SIGNS[state] ?? ["?", ""];
      return el("li", { "data-state": state }, el("span", { class: kind, role: "img", "aria-label": state }, sign),
        el("strong", {}, stage), el("span", {}, ...messages.flatMap((line, i) => (i ? [el("br"), line] : [line]))));
    });
    parts = [el("h2", {}, `${found.query}${inside}`), el("ol", {}, ...steps), el("p", {}, el("strong", {}, found.conclusion))];
  } catch (error) {
    parts = [el("p", { class: "bad" }, error.message)];
  }
  target.replaceChildren(...parts);
}

function search(event) {
  event.preventDefault();
  const [prefix, vrf] = [$("prefix").value.trim(), $("vrf").value.trim()];
  if (!prefix) return;
  history.replaceState(null, "", `#${new URLSearchParams(vrf ? { prefix, vrf } : { prefix })}`);
  explain(prefix, vrf);
}

function searchOfAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  if (!asked.get("prefix")) return;
  $("prefix").value = asked.get("prefix");
  $("vrf").value = asked.get("vrf") ?? "";
  explain($("prefix").value, $("vrf").value);
}

// --- Once a period ---------------------------------------------------------------------------------------------------

let paused = false;
let period = 0;
let latest = { summary: undefined, health: { state: "ok", stalls: [] } };

async function refresh() {
  const pipeline = await api("v1/pipeline");
  measure(pipeline);
  if (period % SLOW === 0) {
    latest.health = await api("v1/health");
    // A router without BGP has no summary.
    latest.summary = await api("v1/bgp/summary").catch((error) => {
      if (error.status === 404) return undefined;
      throw error;
    });
    await showTab();
  }
  period += 1;
  showWay(pipeline, latest.summary !== undefined);
  showWaits(pipeline, latest.health);
  showRouter(latest.summary, latest.health, pipeline);
}

async function run() {
  for (;;) {
    if (!paused && !document.hidden) {
      try {
        await refresh();
      } catch (error) {
        $("router").textContent = `no answer: ${error.message}; the page asks again`;
        $("router").className = "bad";
        $("health").textContent = "";
        period = 0;
      }
    }
    await new Promise((wake) => setTimeout(wake, PERIOD_MS));
  }
}

function giveToken(event) {
  event.preventDefault();
  token = $("token").value.trim();
  sessionStorage.setItem("token", token);
  $("token").value = "";
  $("access").hidden = true;
}

function pause() {
  paused = !paused;
  $("pause").setAttribute("aria-pressed", String(paused));
  $("pause").textContent = paused ? "Go on" : "Pause";
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") document.activeElement.blur();
  if (event.target instanceof HTMLInputElement) return;
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "/") {
    event.preventDefault();
    $("prefix").focus();
  } else if (event.key === "p") {
    pause();
  } else if (names[Number(event.key) - 1]) {
    select(names[Number(event.key) - 1], true);
  } else if (step && event.target.getAttribute?.("role") === "tab") {
    select(names[(names.indexOf(open) + step + names.length) % names.length], true);
  }
});
names.forEach((name) => $(`tab-${name}`).addEventListener("click", () => select(name, false)));
$("pause").addEventListener("click", pause);
$("search").addEventListener("submit", search);
$("access").addEventListener("submit", giveToken);
window.addEventListener("hashchange", searchOfAddress);
searchOfAddress();
run();
