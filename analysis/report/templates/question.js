"use strict";
// The switch of the question: what carries data-question is shown while its question is chosen.
const questionSwitch = document.getElementById("questions");

function ask(prompt) {
  for (const part of document.querySelectorAll("[data-question]")) {
    part.hidden = part.dataset.question !== prompt;
  }
}

if (questionSwitch) {
  questionSwitch.onchange = (event) => ask(event.target.value);
  ask(questionSwitch.querySelector("input:checked").value); // A reload keeps the reader's choice.
}
