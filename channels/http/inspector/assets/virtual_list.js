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
  // Kept, as asking the browser for them has it lay the page out, there and then.
  const place = useRef({ top: 0, height: 600, isAtEnd: true }).current;
  const [view, setView] = useState({ first: 0, size: 5 * CHUNK });

  const look = () => {
    place.isAtEnd = place.top + place.height >= (count - 1) * height;
    const step = CHUNK * height;
    const first = Math.max(0, (Math.floor(place.top / step) - 1) * CHUNK);
    const size = (Math.ceil(place.height / step) + 3) * CHUNK;
    if (first !== view.first || size !== view.size) setView({ first, size });
  };
  const scrollTo = (top) => {
    if (!box.current) return;
    place.top = Math.max(0, Math.min(top, count * height - place.height));
    box.current.scrollTop = place.top;
  };
  /** Scroll as little as needed for the cursor to be seen, or the end where it is followed. */
  const reveal = () => {
    const top = cursor * height;
    if (cursor < 0) {
      if (follow && place.isAtEnd) scrollTo(count * height);
    } else if (top < place.top) {
      scrollTo(top - height);
    } else if (top + height > place.top + place.height) {
      scrollTo(top + 2 * height - place.height);
    }
  };

  const resized = useRef(null);
  resized.current = () => {
    if (!box.current) return;
    place.height = box.current.clientHeight;
    reveal();
    look();
  };
  const onScroll = () => {
    place.top = box.current.scrollTop;
    look();
  };
  useEffect(() => {
    const watch = new ResizeObserver(() => resized.current());
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (cursor < 0) reveal();
    look();
  }, [count, follow]);
  useLayoutEffect(() => {
    reveal();
    look();
  }, [cursor]);

  // Keys may come faster than effects: they find what was rendered last.
  const keys = useRef(null);
  keys.current = {
    move: (steps) => {
      const from = cursor < 0 ? (follow ? count : -1) : cursor;
      if (count) props.onMove(Math.max(0, Math.min(count - 1, from + steps)));
    },
    open: () => { if (cursor >= 0) props.onOpen?.(cursor); },
    fold: (closed) => { if (cursor >= 0) props.onFold?.(cursor, closed); },
  };
  useEffect(() => registerList(name, () => box.current, keys), []);

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
      aria-label=${label} aria-activedescendant=${active} data-list=${name} onScroll=${onScroll}>
    <div class="list-space" role="presentation" style=${{ height: `${count * height}px` }}>
      <div class="list-lines" role="presentation"
        style=${{ transform: `translateY(${first * height}px)` }}>${lines}</div>
    </div>
  </div>`;
}
