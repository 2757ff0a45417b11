// What the timeline shows at the moment under the pointer.
function startTimeline() {
  const drawing = document.getElementById("timeline-drawing");
  const times = DATA.timeline;
  if (!drawing || !times) return;
  const mark = document.getElementById("timeline-mark");
  const words = document.getElementById("timeline-words");
  const before = words.textContent;
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * drawing.viewBox.baseVal.width;
    let at = 0;
    times.x.forEach((place, index) => {
      if (Math.abs(place - x) < Math.abs(times.x[at] - x)) at = index;
    });
    mark.setAttribute("visibility", "visible");
    mark.setAttribute("x1", times.x[at]);
    mark.setAttribute("x2", times.x[at]);
    const parts = times.layers
      .map((name, index) => [name, times.bytes[at][index]])
      .filter(([, bytes]) => bytes)
      .map(([name, bytes]) => `${name} ${bytesText(bytes)}`);
    words.textContent = `${times.seconds[at].toFixed(1)} s: ${bytesText(times.rss[at])} resident; `
      + `${parts.join(", ")}`;
  });
  drawing.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    words.textContent = before;
  });
}

startTimeline();
