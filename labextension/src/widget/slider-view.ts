/** The visible slider in a cell. Plain elements: the page may have no framework at all. */
import type { TranslationBundle } from '@jupyterlab/translation';
import { IView } from '../api/view';
import { LAYERS, ShareHistory } from '../history/share-history';
import { idle, share } from '../words/gpu';
import { describeLimit } from '../words/limit';
import { nearest, positions } from '../words/positions';
import { formatGpus, MILLI_PER_GPU } from '../words/quantity';
import { gpus, sentence } from '../words/sentence';
import { bank, layerName, part, slice } from '../words/share';

/** The shown state. */
export interface IShown {
  readonly view: IView | null;
  /** A request under way; null: none. */
  readonly pending: number | null;
  readonly trouble: string;
  readonly error: string;
  /** Text in place of the line while there is no view. */
  readonly instead: string;
  readonly shares: ShareHistory;
  /** The page may belong to another server than the kernel. */
  readonly far: boolean;
}

/** Callbacks of the slider. */
export interface IActions {
  /** The thumb was released at this amount. */
  commit(milli: number): void;
  /** Try the connection now. */
  retry(): void;
}

const MOVES = new Set([
  ...['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown'],
  ...['PageUp', 'PageDown', 'Home', 'End']
]);

let count = 0;

/** The elements and their events. */
export class SliderView {
  readonly root = make('div', { class: 'jp-gpu-InCell' });
  private readonly input: HTMLInputElement;
  private readonly title: HTMLElement;
  private readonly output: HTMLElement;
  private readonly line: HTMLElement;
  private readonly limit: HTMLElement;
  private readonly idle: HTMLElement;
  private readonly shares: HTMLElement;
  private readonly alert: HTMLElement;
  private readonly words: HTMLElement;
  private readonly trouble: HTMLElement;
  private readonly again: HTMLButtonElement;
  private shown: IShown | null = null;
  private places: readonly number[] = [0];
  /** The thumb is being moved, by mouse or by keys. */
  private held = false;

  constructor(
    private readonly trans: TranslationBundle,
    private readonly actions: IActions
  ) {
    const id = `jupyter-gpu-widget-${Date.now().toString(36)}-${count++}`;
    this.input = make('input', {
      id,
      type: 'range',
      min: '0',
      max: '1',
      step: '1',
      value: '0',
      disabled: '',
      'aria-describedby': `${id}-line`,
      'data-lm-suppress-shortcuts': 'true' // or JupyterLab takes the arrow keys
    });
    // Not an output element: screen readers announce those, and the slider says the same itself.
    this.output = make('span', { class: 'jp-gpu-InCell-amount', 'aria-hidden': 'true' });
    this.line = make('div', { id: `${id}-line`, role: 'status', 'aria-live': 'polite' });
    this.limit = make('div', { class: 'jp-gpu-InCell-limit' });
    this.idle = make('div', { class: 'jp-gpu-InCell-idle' });
    this.shares = make('div', { class: 'jp-gpu-InCell-shares' });
    this.alert = make('div', { role: 'alert' });
    this.words = make('span', {});
    this.again = make('button', { type: 'button', hidden: '' });
    this.again.textContent = trans.__('Try again');
    this.again.addEventListener('click', () => actions.retry());
    const trouble = make('div', { class: 'jp-gpu-InCell-trouble' });
    this.alert.append(this.words);
    trouble.append(this.alert, this.again);
    this.trouble = trouble;
    this.title = make('label', { for: id });
    const { title, input, output, line, limit, shares } = this;
    this.root.append(title, input, output, line, limit, this.idle, shares, trouble);
    this.listen();
  }

  show(shown: IShown): void {
    this.shown = shown;
    const { view, trouble, error, trans } = { ...shown, trans: this.trans };
    say(
      this.title,
      shown.far ? trans.__('GPUs for the kernel’s server') : trans.__('GPUs for this server')
    );
    say(this.words, trouble || error);
    this.again.hidden = !trouble;
    this.trouble.hidden = !trouble && !error;
    if (!view) {
      this.input.disabled = true;
      say(this.line, shown.instead);
      say(this.limit, '');
      this.idle.replaceChildren();
      this.shares.replaceChildren();
      return;
    }
    const words = sentence(view, trans);
    say(this.line, view.simulated ? trans.__('%1 (simulated)', words) : words);
    const { userLimit } = view;
    const lowered = view.conditions.find(({ type }) => type === 'LimitLowered');
    say(this.limit, lowered?.message ?? (userLimit ? describeLimit(userLimit, trans) : ''));
    this.showShares(view, shown.shares);
    this.idle.replaceChildren(...idleLines(view, trans));
    const wanted = shown.pending ?? view.amounts.requested;
    const places = positions(view.steps, view.limit, wanted);
    // A thumb that is being moved stays where it is, unless its places change: the limit may end below it.
    if (!this.held || places[places.length - 1] !== this.places[this.places.length - 1]) {
      const chosen = this.held ? this.chosen() : wanted;
      this.places = places;
      this.input.max = String(Math.max(1, places.length - 1));
      this.input.disabled = places.length < 2;
      this.input.value = String(nearest(places, chosen));
      this.label();
    }
  }

  private label(): void {
    const { view } = this.shown!;
    const { trans } = this;
    const words = trans.__('%1 of %2', formatGpus(this.chosen()), gpus(view!.limit, trans));
    this.input.setAttribute('aria-valuetext', words);
    say(this.output, words);
  }

  private chosen(): number {
    return this.places[Number(this.input.value)] ?? 0;
  }

  /** With keys `change` is emitted at every repeat, so the request is made when the key is released. */
  private listen(): void {
    const { input } = this;
    let typing = false;
    const letGo = () => {
      if (typing) {
        typing = false;
        this.commit();
      }
    };
    input.addEventListener('input', () => {
      this.held = true;
      this.label();
    });
    input.addEventListener('change', () => {
      if (!typing) {
        this.commit();
      }
    });
    input.addEventListener('keydown', event => {
      typing = typing || MOVES.has(event.key);
      if (event.key === 'Escape' && this.held) {
        this.held = typing = false;
        this.show(this.shown!);
      }
    });
    input.addEventListener('keyup', letGo);
    input.addEventListener('blur', letGo);
  }

  private commit(): void {
    const { view, pending } = this.shown!;
    const milli = this.chosen();
    this.held = false;
    if (milli !== (pending ?? view?.amounts.requested)) {
      this.actions.commit(milli);
    } else {
      this.show(this.shown!);
    }
  }

  /** The panel's words in few lines. They change each second, so nothing here is a live region. */
  private showShares(view: IView, history: ShareHistory): void {
    const { trans } = this;
    const parts = view.gpus.filter(gpu => gpu.milli < MILLI_PER_GPU && gpu.state !== 'draining');
    const groups = parts.map(gpu => {
      const group = make('div', {
        class: 'jp-gpu-InCell-share',
        role: 'group',
        'aria-label': trans.__('Your time share of GPU %1', gpu.index)
      });
      const title = trans.__('GPU %1: %2', gpu.index, share(gpu, trans));
      const use = history.latest(gpu.uuid)?.use;
      if (!use) {
        group.append(paragraph(title));
        return group;
      }
      const rates = history.rates(gpu.uuid);
      const bar = make('div', { 'aria-hidden': 'true' });
      for (const layer of LAYERS) {
        const stretch = make('span', { 'data-layer': layer });
        stretch.style.width = `${100 * (rates?.[layer] ?? 0)}%`;
        bar.append(stretch);
      }
      const layers = LAYERS.map(
        layer => `${layerName(layer, trans)} ${part(rates?.[layer], trans)}`
      );
      group.append(
        paragraph([title, trans.__('Slice: %1', slice(use, trans))].join(' · ')),
        bar,
        paragraph(layers.join(' · ')),
        paragraph(trans.__('Bank: %1', bank(use, trans)))
      );
      return group;
    });
    this.shares.replaceChildren(...groups);
  }
}

/** A line for each GPU that is open without anything running on it. They change each minute: no live region. */
function idleLines(view: IView, trans: TranslationBundle): HTMLElement[] {
  return view.gpus
    .filter(gpu => gpu.idleSince !== null)
    .map(gpu => paragraph(trans.__('GPU %1: %2', gpu.index, idle(gpu, Date.now() / 1000, trans))));
}

function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Readonly<Record<string, string>>
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  return element;
}

function paragraph(words: string): HTMLElement {
  const element = make('p', {});
  element.textContent = words;
  return element;
}

/** Change the text only if it differs: a live region is announced at every change. */
function say(node: HTMLElement, words: string): void {
  if (node.textContent !== words) {
    node.textContent = words;
  }
}
