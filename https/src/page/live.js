// Keeps a page current: the server sends each part that has changed, as it renders it, and this puts it in the place of the old one.
// Without script the page is the same, of when it was loaded.
"use strict";
(() => {
  const place = document.body.dataset.events;
  const connection = document.getElementById("connection");
  if (!place || !connection) return;

  // Longer than the server is silent: it says something each five seconds.
  const SILENCE = 15000;
  const RETRY = 1000;
  const LONGEST_RETRY = 15000;
  let source = null;
  let waiting = null;
  let retry = RETRY;
  let heard = 0;
  let lost = null;

  function alive() {
    heard = Date.now();
    retry = RETRY;
    lost = null;
    tell("Live", false);
  }

  function dead(why) {
    lost = lost || new Date();
    const since = lost.toLocaleTimeString();
    tell(why ? `Not current since ${since}: ${why}` : `Not connected since ${since}`, true);
  }

  function tell(text, isLost) {
    // Written only when it changes: it is read aloud.
    if (connection.textContent !== text) connection.textContent = text;
    document.body.classList.toggle("lost", isLost);
  }

  function short(value) {
    for (const [size, prefix] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (value >= size) return `${(value / size).toPrecision(3)} ${prefix}bit/s`;
    }
    return `${Math.round(value)} bit/s`;
  }

  // Draws the graph of a figure, whose numbers are in its data. The table beside it has them for those who cannot see it.
  const drawn = new Map();
  function draw(figure) {
    if (typeof uPlot === "undefined") return;
    const { at, received, sent } = JSON.parse(figure.dataset.graph);
    const known = drawn.get(figure.id);
    const plot = figure.querySelector(".plot");
    if (known && known.root.isConnected) {
      known.setData([at, received, sent]);
      return;
    }
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const value = (_, number) => (number === null ? "" : short(number));
    const series = [
      {},
      { label: "Receiving", stroke: colour("--link"), width: 2, value },
      { label: "Sending", stroke: colour("--waiting"), width: 2, dash: [6, 4], value },
    ];
    const axes = [axis, { ...axis, size: 90, values: (_, numbers) => numbers.map(short) }];
    const scales = { y: { range: (_, least, most) => [0, Math.max(most, 1000)] } };
    plot.replaceChildren();
    const size = { width: Math.max(plot.clientWidth - 16, 240), height: 220 };
    const graph = new uPlot({ ...size, series, axes, scales }, [at, received, sent], plot);
    graph.root.setAttribute("role", "img");
    graph.root.setAttribute("aria-label", figure.dataset.label);
    drawn.set(figure.id, graph);
  }

  function drawAll() {
    for (const [id, graph] of drawn) {
      graph.destroy();
      drawn.delete(id);
    }
    document.querySelectorAll("[data-graph]").forEach(draw);
  }

  function replace({ id, html }) {
    const old = document.getElementById(id);
    if (!old) return;
    const holder = document.createElement("template");
    holder.innerHTML = html;
    const fresh = holder.content.firstElementChild;
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    if (old.getAttribute("class") !== fresh.getAttribute("class")) old.setAttribute("class", fresh.getAttribute("class") || "");
    const open = Array.from(old.querySelectorAll("details"), (details) => details.open);
    const graph = old.querySelector(":scope > .plot .uplot") && old.querySelector(":scope > .plot");
    if (fresh.dataset.graph) old.dataset.graph = fresh.dataset.graph;
    if (graph) fresh.querySelector(".plot").replaceWith(graph);
    old.replaceChildren(...fresh.childNodes);
    old.querySelectorAll("details").forEach((details, at) => (details.open = open[at] || false));
    if (old.dataset.graph) draw(old);
    old.querySelectorAll("[data-graph]").forEach(draw);
    if (focused !== null) {
      const links = Array.from(old.querySelectorAll("a"));
      const again = links.find((link) => link.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }

  function connect() {
    close();
    heard = Date.now();
    source = new EventSource(place);
    source.addEventListener("parts", (event) => {
      alive();
      JSON.parse(event.data).forEach(replace);
    });
    source.addEventListener("now", alive);
    source.addEventListener("beat", () => (heard = Date.now()));
    source.addEventListener("silent", (event) => {
      heard = Date.now();
      dead(JSON.parse(event.data));
    });
    source.addEventListener("gone", () => location.reload());
    source.addEventListener("error", () => again());
  }

  function close() {
    clearTimeout(waiting);
    if (source) source.close();
    source = null;
  }

  function again() {
    close();
    dead();
    waiting = setTimeout(ask, retry);
    retry = Math.min(2 * retry, LONGEST_RETRY);
  }

  // A stream that is refused does not tell why, but an answer does.
  async function ask() {
    let status = 0;
    try {
      status = (await fetch(place, { method: "HEAD", cache: "no-store" })).status;
    } catch {
      status = 0;
    }
    if (document.hidden) return;
    if (status === 401) location.assign("/login");
    else if (status === 404) location.reload();
    else if (status === 200) connect();
    else {
      again();
      if (status === 429) dead("too many pages are open");
    }
  }

  setInterval(() => {
    if (source && Date.now() - heard > SILENCE) again();
  }, 1000);
  // A browser has few connections to a server: a page that nobody sees needs none.
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : connect()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => {
    if (event.persisted) connect();
  });
  addEventListener("resize", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  drawAll();
  if (!document.hidden) connect();
})();
