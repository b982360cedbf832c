"use strict";
// Draws each figure when it comes near the screen, in the colours of the reader's screen; all of them, in light
// colours and at the width of the paper, when the page is printed.
(() => {
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paper = matchMedia("print");
  const touch = matchMedia("(pointer: coarse)");
  const phone = matchMedia("(max-width: 40rem)");
  const PAPER_WIDTH = 660; // pixels of 1/96 inch: fits A4 and Letter within their margins
  const PAPER_GAP = 16;
  const plots = [...document.querySelectorAll(".plot")];
  const specs = new Map();
  const hidden = new Map(); // figure -> names of the series that the reader switched off
  let printing = false;

  const spec = (plot) => {
    if (!specs.has(plot)) specs.set(plot, JSON.parse(document.getElementById(plot.id + "-spec").textContent));
    return specs.get(plot);
  };

  // "@s0" is the theme's colour of that name, "@s0/0.2" the same with an opacity.
  const colour = (text, theme) => {
    const found = /^@(\w+)(?:\/([\d.]+))?$/.exec(text);
    if (!found || !(found[1] in theme)) return text;
    const value = theme[found[1]];
    if (found[2] === undefined) return value;
    const [r, g, b] = [1, 3, 5].map((place) => parseInt(value.slice(place, place + 2), 16));
    return `rgba(${r},${g},${b},${found[2]})`;
  };
  const painted = (value, theme) => {
    if (typeof value === "string") return value[0] === "@" ? colour(value, theme) : value;
    if (Array.isArray(value)) return typeof value[0] === "number" ? value : value.map((entry) => painted(entry, theme));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, entry]) => [key, painted(entry, theme)]));
    }
    return value;
  };

  const merged = (under, over) => {
    if (!over || typeof over !== "object" || Array.isArray(over)) return over;
    const both = Array.isArray(under) ? [...under] : { ...under };
    for (const [key, value] of Object.entries(over)) both[key] = key in both ? merged(both[key], value) : value;
    return both;
  };

  const config = {
    responsive: true, displaylogo: false, displayModeBar: touch.matches ? false : "hover", showTips: false, doubleClickDelay: 400,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "hoverClosestCartesian", "hoverCompareCartesian"],
    toImageButtonOptions: { format: "svg" },
  };

  const size = (plot) => {
    if (!printing) return { autosize: true };
    const columns = Number(plot.closest(".panels").dataset.columns);
    const aspect = Number(plot.dataset.aspect);
    const width = Math.floor((PAPER_WIDTH - PAPER_GAP * (columns - 1)) / columns);
    return { autosize: false, width, height: aspect ? Math.round(width / aspect) : Number(plot.dataset.height) };
  };

  const draw = (plot) => {
    const theme = themes[dark.matches && !printing ? "dark" : "light"];
    const { narrow, ...wide } = spec(plot);
    const { data, layout } = painted(narrow && phone.matches && !printing ? merged(wide, narrow) : wide, theme);
    const off = hidden.get(plot.closest("figure")) || new Set();
    for (const trace of data) if (off.has(trace.legendgroup)) trace.visible = false;
    const box = size(plot);
    plot.style.width = box.width ? box.width + "px" : "";
    plot.style.height = box.height ? box.height + "px" : plot.dataset.aspect === "0" ? plot.dataset.height / 16 + "rem" : "";
    // A finger that drags over a figure means to scroll the page.
    const drag = touch.matches && !layout.scene ? { dragmode: false } : {};
    plot.dataset.state = "drawing";
    try {
      return Plotly.react(plot, data, { ...layout, ...box, ...drag }, config).then(
        () => { plot.dataset.state = "drawn"; },
        (error) => { plot.dataset.state = "failed"; throw error; },
      );
    } catch (error) {
      plot.dataset.state = "failed";
      throw error;
    }
  };

  // Three-dimensional views paint on the next frame, which never comes while the browser prints: a copy goes on paper.
  const copy = (plot) => {
    plot.querySelectorAll(".still").forEach((still) => still.remove());
    const view = plot._fullLayout?.scene?._scene?.glplot;
    if (!printing || !view?.redraw || !view.canvas) return;
    view.redraw();
    const still = document.createElement("canvas");
    still.className = "still";
    still.width = view.canvas.width;
    still.height = view.canvas.height;
    still.getContext("2d").drawImage(view.canvas, 0, 0);
    plot.append(still);
  };

  const redraw = () => plots.filter((plot) => plot.dataset.state).forEach(draw);
  const print = (now) => {
    if (printing === now) return;
    printing = now;
    plots.filter((plot) => now || plot.dataset.state).forEach((plot) => { draw(plot); copy(plot); });
  };

  if ("IntersectionObserver" in window) {
    const near = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        near.unobserve(entry.target);
        if (!entry.target.dataset.state) draw(entry.target);
      }
    }, { rootMargin: "800px 0px" });
    plots.forEach((plot) => near.observe(plot));
  } else plots.forEach(draw);

  dark.addEventListener("change", redraw);
  phone.addEventListener("change", redraw);
  paper.addEventListener("change", () => print(paper.matches));
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const figure = button.closest("figure");
      const off = hidden.get(figure) || new Set();
      const name = button.dataset.series;
      if (!off.delete(name)) off.add(name);
      hidden.set(figure, off);
      button.setAttribute("aria-pressed", String(!off.has(name)));
      figure.querySelectorAll(".plot").forEach(draw);
    });
  }

  // The contents show where the reader is.
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  if ("IntersectionObserver" in window && links.size) {
    const here = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        links.forEach((link) => link.removeAttribute("aria-current"));
        links.get(entry.target.id)?.setAttribute("aria-current", "location");
      }
    }, { rootMargin: "-15% 0px -75% 0px" });
    links.forEach((_, name) => here.observe(document.getElementById(name)));
  }
})();
