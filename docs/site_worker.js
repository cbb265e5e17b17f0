// Search in pages that are opened as files: a browser starts no worker from there, so a frame
// takes its place. The theme would fetch such a shim from another host (docs/site.sh).
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.early = [];
      const start = () => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        document.body.append(frame);
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = inside.document.createElement("script");
        script.src = new URL(url, location);
        script.onload = () => {
          this.postMessage = (data) =>
            inside.dispatchEvent(new inside.MessageEvent("message", { data }));
          this.early.forEach(this.postMessage);
        };
        inside.document.body.append(script);
      };
      document.body ? start() : addEventListener("DOMContentLoaded", start);
    }
    postMessage(data) {
      this.early.push(data);
    }
    terminate() {}
  };
}
