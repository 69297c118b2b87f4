// A picture to start from: made small here, painted over with a mask, and sent as PNG or JPEG inside an event.
window.todomeUpload = (element, send) => {
  const longest = 2048;  // pixels that are sent at the most
  const part = (selector) => element.querySelector(selector);
  const canvas = part("canvas"), pen = canvas.getContext("2d"), image = part("img");
  let picture = "", last = null;

  async function loaded(file) {
    const bitmap = await createImageBitmap(file);
    const scale = Math.min(1, longest / Math.max(bitmap.width, bitmap.height));
    const copy = document.createElement("canvas");
    copy.width = Math.max(1, Math.round(bitmap.width * scale));
    copy.height = Math.max(1, Math.round(bitmap.height * scale));
    copy.getContext("2d").drawImage(bitmap, 0, 0, copy.width, copy.height);
    return copy;
  }

  // The mask: white on black, as pipelines want it. Blended with the picture below, black is not seen.
  function clear() {
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, canvas.width, canvas.height);
  }

  const tell = () => send({ picture, mask: picture && canvas.toDataURL("image/png") });

  function usePicture(copy) {
    picture = copy.toDataURL("image/jpeg", 0.95);
    image.src = picture;
    canvas.width = copy.width;
    canvas.height = copy.height;
    clear();
    part(".upload").classList.add("has-picture");
  }

  element.addEventListener("change", async (event) => {
    const kind = event.target.dataset.file, [file] = event.target.files ?? [];
    if (!kind || !file) return;
    try {
      const copy = await loaded(file);
      kind === "picture" ? usePicture(copy) : pen.drawImage(copy, 0, 0, canvas.width, canvas.height);
      tell();
    } catch {
      send({ picture: "data:," });  // what the browser cannot read, the server explains
    }
    event.target.value = "";
  });

  element.addEventListener("click", (event) => {
    const removes = event.target.closest("[data-remove]");
    if (!removes && !event.target.closest("[data-clear]")) return;
    clear();
    if (removes) {
      picture = "";
      part(".upload").classList.remove("has-picture");
    }
    tell();
  });

  function paint(event) {
    const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
    const at = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    pen.strokeStyle = "#fff";
    pen.lineCap = "round";
    pen.lineWidth = (Number(part("[data-brush]").value) / 100) * canvas.width;
    pen.beginPath();
    pen.moveTo(...(last ?? at));
    pen.lineTo(...at);
    pen.stroke();
    last = at;
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    paint(event);
  });
  canvas.addEventListener("pointermove", (event) => last && paint(event));
  for (const end of ["pointerup", "pointercancel"])
    canvas.addEventListener(end, () => {
      if (last) tell();
      last = null;
    });
};
