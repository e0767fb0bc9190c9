// The report's attempts: packed blocks of pages that were escaped when the report was made, opened one at a time.
"use strict";
(() => {
  const unpacked = new Map();
  async function block(number) {
    if (!unpacked.has(number)) {
      const packed = atob(document.getElementById(`block-${number}`).textContent);
      const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      unpacked.set(number, (await new Response(stream).text()).split("\x1e"));
    }
    return unpacked.get(number);
  }
  const link = (element, row) => {
    element.hidden = !row;
    if (row) element.href = `#a${row.dataset.key}`;
  };
  const openable = (row, side) => {
    let next = row?.[side];
    while (next && next.dataset.block === undefined) next = next[side];
    return next;
  };
  function partners(row) {
    const place = document.getElementById("partners");
    place.replaceChildren();
    for (const said of (row.dataset.partners ?? "").trim().split(/\s+/).filter(Boolean)) {
      const [letter, number] = said.split(":");
      const other = document.createElement("a");
      other.href = `#a${number}`;
      other.textContent = `The same in run ${letter}`;
      place.append(other, " ");
    }
  }
  async function open() {
    const found = /^#a(\d+)$/.exec(location.hash);
    const row = found && document.querySelector(`tr[data-key="${found[1]}"][data-block]`);
    if (!row) return;
    const pages = await block(row.dataset.block);
    if (location.hash !== found[0]) return; // another was asked for meanwhile
    const reader = document.getElementById("reader");
    document.getElementById("open").innerHTML = pages[row.dataset.index];
    document.getElementById("open-title").textContent = row.cells[0].textContent.trim();
    link(document.getElementById("before"), openable(row, "previousElementSibling"));
    link(document.getElementById("after"), openable(row, "nextElementSibling"));
    partners(row);
    document.querySelectorAll("tr[data-key].chosen").forEach((other) => other.classList.remove("chosen"));
    row.classList.add("chosen");
    reader.hidden = false;
    reader.scrollIntoView({ block: "start", behavior: "instant" });
    reader.focus({ preventScroll: true });
  }
  addEventListener("hashchange", open);
  document.addEventListener("DOMContentLoaded", open);
})();
