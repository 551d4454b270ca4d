"use strict";
// A button with data-copy="<id>" copies the text of that element.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.onclick = async () => {
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected: copy it with your keyboard";
    }
  };
}
