// Keys, sorting, theme and live update. Every page is whole without it.
"use strict";
(() => {
  const root = document.documentElement;
  const remembered = (value) => {
    try {
      if (value !== undefined) localStorage.setItem("harness-theme", value);
      return localStorage.getItem("harness-theme");
    } catch {
      return value ?? null; // a page from file:// may remember nothing
    }
  };
  const theme = remembered();
  if (theme === "light" || theme === "dark") root.dataset.theme = theme;

  const typing = (target) => target.closest("input, select, textarea, [contenteditable]") !== null;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  function themeButton() {
    const button = document.getElementById("theme");
    if (!button) return;
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = root.dataset.theme
        ? root.dataset.theme === "dark"
        : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = remembered(dark ? "light" : "dark") ?? (dark ? "light" : "dark");
    });
  }

  // Sorting: by number where every cell begins with one, else by text; cells with data-value say it themselves.
  const raw = (cell) => cell?.dataset.value ?? cell?.textContent.trim() ?? "";
  function number(text) {
    const found = /^[≥<$+−-]?\$?\d[\d,.]*(e[+-]?\d+)?/i.exec(text);
    if (!found) return text === "–" || text === "" ? -Infinity : NaN;
    const scale = { k: 1e3, M: 1e6 }[text[found[0].length]] ?? 1;
    return parseFloat(found[0].replace(/[≥<$,+]/g, "").replace("−", "-")) * scale;
  }
  function sortBy(table, heading, direction) {
    const place = heading.cellIndex;
    const rows = all("tbody tr", table);
    const keys = new Map(rows.map((row) => [row, raw(row.cells[place])]));
    const numeric = rows.every((row) => !Number.isNaN(number(keys.get(row))));
    const compare = numeric
      ? (a, b) => number(keys.get(a)) - number(keys.get(b)) || 0
      : (a, b) => keys.get(a).localeCompare(keys.get(b), "en", { numeric: true });
    rows.sort((a, b) => (direction === "ascending" ? compare(a, b) : compare(b, a)));
    all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", direction);
    table.tBodies[0].append(...rows);
  }
  function sortable(within) {
    for (const heading of all("table[data-sort] thead th", within)) {
      if (heading.querySelector("button") || !heading.textContent.trim()) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const down = heading.getAttribute("aria-sort") === "ascending" ||
          (!heading.hasAttribute("aria-sort") && heading.classList.contains("number"));
        sortBy(heading.closest("table"), heading, down ? "descending" : "ascending");
      });
    }
  }
  function sortedAs(before, after) {
    const tables = all("table[data-sort]", after);
    all("table[data-sort]", before).forEach((table, place) => {
      const heading = table.querySelector("th[aria-sort]");
      const same = heading && tables[place]?.tHead.rows[0].cells[heading.cellIndex];
      if (same) sortBy(tables[place], same, heading.getAttribute("aria-sort"));
    });
  }

  // Choosing with the keyboard: rows of the list that data-keys names, or the turns of a conversation.
  const choices = () => all("table[data-keys] tbody tr").concat(all(".conversation .message.assistant"));
  let chosen = null;
  function choose(step) {
    const list = choices();
    if (!list.length) return;
    const now = list.findIndex((one) => one === chosen || (chosen && one.dataset.key && one.dataset.key === chosen.dataset.key));
    const next = list[Math.max(0, Math.min(list.length - 1, now < 0 ? (step > 0 ? 0 : list.length - 1) : now + step))];
    list.forEach((one) => one.classList.remove("chosen"));
    next.classList.add("chosen");
    chosen = next;
    const link = next.querySelector("th a, td a");
    (link ?? next).focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }
  function follow(relation) {
    const link = document.querySelector(`a[rel~="${relation}"]`);
    if (link) link.click();
    return Boolean(link);
  }
  function help() {
    const dialog = document.getElementById("keys");
    if (dialog) dialog.open ? dialog.close() : dialog.showModal();
  }
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) {
      if (event.key === "?") help();
      return;
    }
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const actions = {
      j: () => choose(1), k: () => choose(-1), n: () => follow("next"), p: () => follow("prev"),
      "?": help, "/": () => document.querySelector("input[type=search]")?.focus(),
      Escape: () => follow("up"),
      Enter: () => {
        if (event.target.closest("a, button, summary")) return false; // the browser does that by itself
        chosen?.querySelector("th a, td a")?.click();
        return Boolean(chosen);
      },
    };
    if (Object.hasOwn(actions, event.key) && actions[event.key]() !== false) event.preventDefault();
  }

  // Live update: the page is asked for again, and the parts marked data-part take the place of the old ones.
  function keepOpen(before, after) {
    all("details[open]", before).forEach((one) => {
      const place = all("details", before).indexOf(one);
      const same = all("details", after)[place];
      if (same) same.open = true;
    });
  }
  function replace(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    for (const part of all("[data-part]")) {
      const other = fresh.querySelector(`[data-part="${CSS.escape(part.dataset.part)}"]`);
      if (!other || other.innerHTML === part.dataset.seen) continue;
      const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      if (part.contains(document.activeElement) && typing(document.activeElement)) continue;
      const seen = other.innerHTML;
      keepOpen(part, other);
      sortable(other);
      sortedAs(part, other);
      part.replaceChildren(...other.childNodes);
      part.dataset.seen = seen;
      if (chosen?.dataset.key) part.querySelector(`tr[data-key="${CSS.escape(chosen.dataset.key)}"]`)?.classList.add("chosen");
      if (focused) part.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    }
    document.body.dataset.live = fresh.body.dataset.live ?? "";
  }
  async function live() {
    let tag = null;
    let wait = 0;
    for (;;) {
      const every = parseFloat(document.body.dataset.live);
      if (!(every > 0)) return;
      wait = wait || every;
      await new Promise((done) => setTimeout(done, 1000 * wait));
      if (document.hidden) continue;
      try {
        const answer = await fetch(location.href, { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          tag = answer.headers.get("ETag");
          replace(await answer.text());
        }
        wait = every;
        document.body.classList.remove("lost");
      } catch {
        wait = Math.min(60, 2 * wait);
        document.body.classList.add("lost");
      }
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    sortable(document);
    document.addEventListener("keydown", keys);
    document.getElementById("keys-button")?.addEventListener("click", help);
    all("select[data-submit]").forEach((one) => one.addEventListener("change", () => one.form.requestSubmit()));
    if (location.protocol.startsWith("http")) live();
  });
})();
