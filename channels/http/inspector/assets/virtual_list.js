// A list of lines of one height, of which only those in sight are in the document.
import { html, oncePerFrame, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";
import { registerList } from "./keyboard.js";

const CHUNK = 8; // Lines that come and go together.
const MAX_NEW = CHUNK; // Lines that are drawn anew in one frame; the next one goes on.

/** Where the list stands in its box: kept, as asking the browser for it forces a layout. */
class Place {
  top = 0;
  height = 600;
  /** Whether the box has yet to be scrolled to `top`. */
  isChosen = false;
  #isAtEnd = true;
  #drawn = {};

  constructor(line) { this.line = line; }

  /** The lines that should be in the document, as {first, size}. */
  get window() {
    const step = CHUNK * this.line;
    return {
      first: Math.max(0, (Math.floor(this.top / step) - 1) * CHUNK),
      size: (Math.ceil(this.height / step) + 3) * CHUNK,
    };
  }

  get firstInSight() { return Math.floor(this.top / this.line); }

  /** The user has scrolled or the box has changed: whether there is something to draw. */
  look(list) {
    this.#isAtEnd = this.top + this.height >= (list.count - 1) * this.line;
    const { first, size } = this.window;
    return this.isChosen || first !== this.#drawn.first || size !== this.#drawn.size;
  }

  /** The window to draw.  A list that has changed moves first, so that it is drawn only once. */
  draw(list) {
    const { count, cursor, follow } = this.#drawn;
    const hasGrown = list.count !== count || list.follow !== follow;
    if (list.cursor !== cursor || (list.cursor < 0 && hasGrown)) this.reveal(list);
    this.#drawn = { ...list, ...this.window };
    this.look(list);
    return this.#drawn;
  }

  /** Scroll as little as needed for the cursor to be seen, or the end where it is followed. */
  reveal({ count, cursor, follow }) {
    const { line, height } = this;
    const space = count * line;
    const top = cursor * line;
    if (cursor < 0) {
      if (follow && this.#isAtEnd) this.#choose(space, space);
    } else if (top < this.top) {
      this.#choose(top - line, space);
    } else if (top + line > this.top + height) {
      this.#choose(top + 2 * line - height, space);
    }
  }

  #choose(top, space) {
    this.top = Math.max(0, Math.min(top, space - this.height));
    this.isChosen = true;
  }
}

/** The lines in the document, by slot: those that leave at one end are used again at the other. */
export class Lines {
  #slots = [];
  #next = -1;

  /** Whether lines were left for the next frame. */
  get isShort() { return this.#next >= 0; }

  /** The elements of a window; where many are new, those in sight come first. */
  draw({ first, size, count }, firstInSight, make) {
    const last = Math.min(first + size, count);
    const order = [];
    const middle = Math.max(first, Math.min(firstInSight, last));
    for (let index = middle; index < last; index += 1) order.push(index);
    for (let index = middle - 1; index >= first; index -= 1) order.push(index);
    // What was left is first now: lines that change in every frame would keep others from it.
    const begin = Math.max(0, order.indexOf(this.#next));
    const slots = [];
    let left = MAX_NEW;
    this.#next = -1;
    for (const index of [...order.slice(begin), ...order.slice(0, begin)]) {
      const slot = index % size;
      const before = this.#slots[slot];
      const wasHere = before?.index === index;
      const { key, element } = make(index, slot);
      if (wasHere && before.key === key) {
        slots[slot] = { index, key, element };
      } else if (left > 0) {
        left -= 1;
        slots[slot] = { index, key, element };
      } else {
        if (this.#next < 0) this.#next = index;
        slots[slot] = wasHere ? before : { index, element: blank(slot) };
      }
    }
    this.#slots = slots;
    return order.sort((one, other) => one - other).map((index) => slots[index % size].element);
  }
}

const blank = (slot) => html`<div key=${slot} class="line" role="presentation"></div>`;

/**
 * `line(index)` gives a line's content and attributes as {key, content, attrs}; `cursor` is the
 * index that j and k move from; with `follow` a list that is at its end stays there.
 */
export function VirtualList(props) {
  const { name, count, height, line, cursor = -1, follow = false, label, role = "listbox" } = props;
  const list = { count, cursor, follow };
  const box = useRef(null);
  const place = useMemo(() => new Place(height), [height]);
  const lines = useMemo(() => new Lines(), []);
  const [, setDrawings] = useState(0);
  const again = useMemo(() => oncePerFrame(() => setDrawings((before) => before + 1)), []);

  const resized = useRef(null);
  resized.current = () => {
    if (!box.current) return;
    place.height = box.current.clientHeight;
    place.reveal(list);
    if (place.look(list)) again();
  };
  const onScroll = () => {
    place.top = box.current.scrollTop;
    if (place.look(list)) again();
  };
  useEffect(() => {
    const watch = new ResizeObserver(() => resized.current());
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (place.isChosen) box.current.scrollTop = place.top;
    place.isChosen = false;
    if (lines.isShort) again();
  });

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

  const wanted = place.draw(list);
  const first = Math.min(wanted.first, Math.max(0, count - 1));
  let active;
  const elements = lines.draw({ ...wanted, first }, place.firstInSight, (index, slot) => {
    const { key, content, attrs } = line(index);
    const id = `${name}-${key}`;
    if (index === cursor) active = id;
    const element = html`<div key=${slot} id=${id} class="line" ...${attrs}
      aria-selected=${String(index === cursor)} onClick=${() => props.onPick(index)}>${content}</div>`;
    return { key, element };
  });
  return html`<div class=${`list ${props.class || ""}`} ref=${box} tabindex="0" role=${role}
      aria-label=${label} aria-activedescendant=${active} data-list=${name} onScroll=${onScroll}>
    <div class="list-space" role="presentation" style=${{ height: `${count * height}px` }}>
      <div class="list-lines" role="presentation"
        style=${{ transform: `translateY(${first * height}px)` }}>${elements}</div>
    </div>
  </div>`;
}
