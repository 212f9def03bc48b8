// A list of lines of one height, of which only those in sight are in the document.
import { html, useEffect, useLayoutEffect, useRef, useState } from "./lib.js";
import { registerList } from "./keyboard.js";

const CHUNK = 8; // Lines that come and go together.

/**
 * `line(index)` gives a line's content and attributes as {key, content, attrs}; `cursor` is the
 * index that j and k move from; with `follow` a list that is at its end stays there.
 */
export function VirtualList(props) {
  const { name, count, height, line, cursor = -1, follow = false, label, role = "listbox" } = props;
  const box = useRef(null);
  const atEnd = useRef(true);
  const [view, setView] = useState({ first: 0, size: 5 * CHUNK });

  const look = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    atEnd.current = scrollTop + clientHeight >= scrollHeight - height;
    const step = CHUNK * height;
    const first = Math.max(0, (Math.floor(scrollTop / step) - 1) * CHUNK);
    const size = (Math.ceil(clientHeight / step) + 3) * CHUNK;
    if (first !== view.first || size !== view.size) setView({ first, size });
  };

  /** Scroll as little as needed for the cursor to be seen, or the end where it is followed. */
  const reveal = () => {
    const element = box.current;
    if (cursor < 0) {
      if (follow && atEnd.current) element.scrollTop = count * height;
      return;
    }
    const top = cursor * height;
    if (top < element.scrollTop) element.scrollTop = Math.max(0, top - height);
    else if (top + height > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + 2 * height - element.clientHeight;
    }
  };

  const latest = useRef(null);
  latest.current = () => { reveal(); look(); };
  useEffect(() => {
    const watch = new ResizeObserver(() => latest.current());
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => { if (cursor < 0) reveal(); look(); }, [count, follow]);
  useLayoutEffect(reveal, [cursor]);

  useEffect(() => registerList(name, {
    element: () => box.current,
    move: (steps) => {
      const from = cursor < 0 ? (follow ? count : -1) : cursor;
      if (count) props.onMove(Math.max(0, Math.min(count - 1, from + steps)));
    },
    open: () => { if (cursor >= 0) props.onOpen?.(cursor); },
    fold: (closed) => { if (cursor >= 0) props.onFold?.(cursor, closed); },
  }));

  const first = Math.min(view.first, Math.max(0, count - 1));
  const last = Math.min(first + view.size, count);
  const lines = [];
  let active;
  for (let index = first; index < last; index += 1) {
    const { key, content, attrs } = line(index);
    const id = `${name}-${key}`;
    if (index === cursor) active = id;
    // Lines that leave at one end are used again at the other.
    lines.push(html`<div key=${index % view.size} id=${id} class="line" ...${attrs}
      aria-selected=${String(index === cursor)} onClick=${() => props.onPick(index)}>${content}</div>`);
  }
  return html`<div class=${`list ${props.class || ""}`} ref=${box} tabindex="0" role=${role}
      aria-label=${label} aria-activedescendant=${active} data-list=${name} onScroll=${look}>
    <div class="list-space" role="presentation" style=${{ height: `${count * height}px` }}>
      <div class="list-lines" role="presentation"
        style=${{ transform: `translateY(${first * height}px)` }}>${lines}</div>
    </div>
  </div>`;
}
