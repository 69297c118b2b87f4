// The slider between two pictures, the buttons that copy, and the way to the picture on a small screen.
document.addEventListener("input", (event) => {
  const frame = event.target.type === "range" && event.target.closest(".frame");
  if (frame) frame.style.setProperty("--at", event.target.value + "%");
});
document.addEventListener("click", (event) => {
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const text = copy.closest("details").querySelector("code").textContent;
    navigator.clipboard?.writeText(text).then(() => { copy.textContent = "Copied"; }, () => {});
  }
  if (event.target.closest("#draw") && window.innerWidth < 900) {
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    document.getElementById("results")?.scrollIntoView({ behavior: calm ? "auto" : "smooth" });
  }
});
document.documentElement.classList.toggle("no-clipboard", !navigator.clipboard);
