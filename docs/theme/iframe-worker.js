/* The search from a folder: browsers start no worker for a page of file://, so what the theme
   would run in one runs in a hidden frame. The index comes as a script (plugin "offline"). */
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = frame.contentWindow;
      const send = inner.postMessage.bind(inner);  // before the frame's own name for it is set
      const started = new Promise((resolve) => frame.addEventListener("started", resolve));
      this.postMessage = (data) => started.then(() => send(data, "*"));
      this.terminate = () => frame.remove();
      window.addEventListener("message", ({ source, data }) => {
        if (source === inner) this.dispatchEvent(new MessageEvent("message", { data }));
      });
      inner.document.open();
      inner.document.write(
        `<script>postMessage = (data) => parent.postMessage(data, "*")</script>` +
        `<script src="${url}"></script>` +
        `<script>frameElement.dispatchEvent(new Event("started"))</script>`,
      );
      inner.document.close();
    }
  };
}
