// The keyboard: lists that j and k move in, and keys that work everywhere.
import { signal } from "./lib.js";

const lists = new Map();
let recent = "";

/** What stands over the page, one above the other: {kind, …}; see dialogs. */
export const dialogs = signal([]);
export const openDialog = (facts) => { dialogs.value = [...dialogs.peek(), facts]; };
export const closeDialog = () => { dialogs.value = dialogs.peek().slice(0, -1); };

/** `element()` is the list's own, `keys.current` what its keys do: move, open, fold. */
export function registerList(name, element, keys) {
  const list = { element, keys };
  lists.set(name, list);
  return () => { if (lists.get(name) === list) lists.delete(name); };
}

/** The list with the focus, or that had it last, or the first that there is. */
function currentList(preferred) {
  const within = document.activeElement?.closest?.("[data-list]")?.dataset.list;
  if (within) recent = within;
  const name = [within, preferred(), recent, "runs"].find((each) => each && lists.has(each));
  return lists.get(name)?.keys.current;
}

export function focusList(name) {
  lists.get(name)?.element()?.focus();
  recent = name;
}

const isTyping = (element) =>
  element?.matches?.("input:not([type=range]):not([type=checkbox]), textarea, select") ?? false;

/** `actions` are functions by key; `preferred()` names the list that keys go to without a focus. */
export function startKeyboard({ actions, preferred }) {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (dialogs.peek().length) return; // A dialog has its own keys.
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const work = moves(event, preferred) || actions[event.key];
    if (work) {
      event.preventDefault();
      work();
    }
  });
}

function moves(event, preferred) {
  const isRange = event.target?.matches?.("input[type=range]");
  const isButton = event.target?.matches?.("button, a, summary, [role=tab]");
  if (event.key === "Enter" && isButton) return null;
  const inList = event.target?.closest?.("[data-list]");
  const arrows = inList && !isRange;
  const list = () => currentList(preferred);
  switch (event.key) {
    case "j": return () => list()?.move(1);
    case "k": return () => list()?.move(-1);
    case "ArrowDown": return arrows ? () => list()?.move(1) : null;
    case "ArrowUp": return arrows ? () => list()?.move(-1) : null;
    case "PageDown": return arrows ? () => list()?.move(20) : null;
    case "PageUp": return arrows ? () => list()?.move(-20) : null;
    case "Home": return arrows ? () => list()?.move(-1e9) : null;
    case "End": case "G": return arrows || event.key === "G" ? () => list()?.move(1e9) : null;
    case "ArrowLeft": return arrows ? () => list()?.fold(true) : null;
    case "ArrowRight": return arrows ? () => list()?.fold(false) : null;
    case "Enter": return () => list()?.open();
    default: return null;
  }
}
