export default {
  render({ model, el }) {
    const frame = document.createElement("iframe");
    frame.sandbox = "allow-scripts allow-downloads";
    frame.title = "attention";
    frame.style = "border:0;border-radius:8px;color-scheme:normal;width:100%;height:680px";
    frame.srcdoc = model.get("page");
    const heard = (event) => {
      if (event.source !== frame.contentWindow || !event.data?.attnviz) return;
      model.set("selection", event.data.attnviz);
      model.save_changes();
    };
    addEventListener("message", heard);
    el.replaceChildren(frame);
    return () => removeEventListener("message", heard);
  },
};
