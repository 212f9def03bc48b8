// A list of lines of one height, of which only those in sight are in the document.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { registerList } from "./keyboard.js";

const SPARE = 8; // Lines beyond both edges.

/**
 * `line(index)` gives a line's content and attributes as {key, content, attrs}; `cursor` is the
 * index that j and k move from; with `follow` a list that is at its end stays there.
 */
export function VirtualList(props) {
  const { name, count, height, line, cursor = -1, follow = false, label, role = "listbox" } = props;
  const box = useRef(null);
  const atEnd = useRef(true);
  const [view, setView] = useState({ first: 0, last: 40 });

  const look = () => {
    const element = box.current;
    if (!element) return;
    const { scrollTop, clientHeight, scrollHeight } = element;
    atEnd.current = scrollTop + clientHeight >= scrollHeight - height;
    const first = Math.max(0, Math.floor(scrollTop / height) - SPARE);
    const last = Math.ceil((scrollTop + clientHeight) / height) + SPARE;
    if (first !== view.first || last !== view.last) setView({ first, last });
  };

  useEffect(() => {
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, [view]);

  useLayoutEffect(() => {
    const element = box.current;
    if (follow && cursor < 0 && atEnd.current) element.scrollTop = count * height;
    look();
  }, [count, follow]);

  useLayoutEffect(() => {
    if (cursor < 0) return;
    const element = box.current;
    const top = cursor * height;
    if (top < element.scrollTop) element.scrollTop = Math.max(0, top - height);
    else if (top + height > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + 2 * height - element.clientHeight;
    }
  }, [cursor]);

  useEffect(() => registerList(name, {
    element: () => box.current,
    move: (steps) => {
      const from = cursor < 0 ? (follow ? count : -1) : cursor;
      const to = Math.max(0, Math.min(count - 1, from + steps));
      if (count) props.onMove(to);
    },
    open: () => { if (cursor >= 0) props.onOpen?.(cursor); },
    fold: (closed) => { if (cursor >= 0) props.onFold?.(cursor, closed); },
  }));

  const first = Math.min(view.first, Math.max(0, count - 1));
  const last = Math.min(view.last, count);
  const lines = [];
  for (let index = first; index < last; index += 1) {
    const { key, content, attrs } = line(index);
    lines.push(html`<div key=${key} id=${`${name}-${key}`} class="line" ...${attrs}
      aria-selected=${index === cursor} onClick=${() => props.onPick(index)}>${content}</div>`);
  }
  const active = cursor >= first && cursor < last ? `${name}-${line(cursor).key}` : undefined;
  return html`<div class=${`list ${props.class || ""}`} ref=${box} tabindex="0" role=${role}
      aria-label=${label} aria-activedescendant=${active} data-list=${name} onScroll=${look}
      onFocus=${() => props.onFocus?.()}>
    <div class="list-space" role="presentation" style=${{ height: `${count * height}px` }}>
      <div class="list-lines" role="presentation"
        style=${{ transform: `translateY(${first * height}px)` }}>${lines}</div>
    </div>
  </div>`;
}
