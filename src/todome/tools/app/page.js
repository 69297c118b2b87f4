// The slider between two pictures, one picture of several, copying, the way to the picture, and the server's end.
const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
const toPicture = () =>
  document.getElementById("results")?.scrollIntoView({ behavior: calm ? "auto" : "smooth", block: "start" });

document.addEventListener("input", (event) => {
  const frame = event.target.type === "range" && event.target.closest(".frame");
  if (frame) frame.style.setProperty("--at", event.target.value + "%");
});

function showPair(button) {
  const stage = button.closest(".stage"), shown = button.dataset.show;
  stage.classList.toggle("one", shown !== "");
  for (const frame of stage.querySelectorAll(".frame")) frame.classList.toggle("shown", frame.dataset.pair === shown);
  const next = shown === "" ? stage.querySelector("button.cell") : stage.querySelector(".frame.shown input");
  next?.focus({ preventScroll: true });
}

document.addEventListener("click", (event) => {
  const found = (selector) => event.target.closest(selector);
  if (found("[data-copy]")) {
    const copy = found("[data-copy]"), text = copy.closest("details").querySelector("code").textContent;
    navigator.clipboard?.writeText(text).then(() => { copy.textContent = "Copied"; }, () => {});
  }
  if (found("[data-show]")) showPair(found("[data-show]"));
  const top = document.getElementById("results")?.getBoundingClientRect().top ?? 0;
  const outOfSight = top < -80 || top > window.innerHeight / 2;
  if (found("#draw, #compare, [data-run]") && outOfSight) toPicture();
  if (found("[data-reconnect]")) location.reload();
});
document.documentElement.classList.toggle("no-clipboard", !navigator.clipboard);

// Asks every few seconds whether the server that served this page is still there.
(() => {
  const every = 3000;
  let served, missed = 0, banner;

  function tell(text, button) {
    banner?.remove();
    banner = document.createElement("div");
    banner.className = "gone-banner";
    banner.setAttribute("role", "alert");
    banner.append(text + " ");
    const reconnect = document.createElement("button");
    reconnect.textContent = button;
    reconnect.dataset.reconnect = "";
    banner.append(reconnect);
    document.body.append(banner);
    document.documentElement.classList.add("gone");
  }

  async function ask() {
    try {
      const said = await fetch("gradio_api/app_id", { cache: "no-store" });
      const id = (await said.json()).app_id;
      served ??= id;
      if (served !== id || document.documentElement.classList.contains("gone"))
        tell("The server is back. Runs that were being drawn are lost.", "Load the page anew");
      missed = 0;
    } catch {
      missed += 1;
      if (missed >= 2) tell("The server no longer answers. Nothing can be drawn until it is back.", "Try to reconnect");
    }
    setTimeout(ask, every);
  }
  ask();
})();
