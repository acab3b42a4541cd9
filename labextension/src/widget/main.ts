/**
 * The slider that `gpu` shows in a cell: an ES module for anywidget, bundled into `jupyter_gpu/kernel/widget/page.js`. It has
 * the panel's readers and words.
 *
 * A page may belong to another server than the kernel, as behind a gateway. So it asks its own server which one it
 * is, and goes through the kernel unless that is the kernel's. Nothing that it receives is kept in the widget's state.
 */
import { IView } from '../api/view';
import { ShareHistory } from '../history/share-history';
import { formatGpus } from '../words/quantity';
import { speak } from '../words/remote-sentence';
import { gpus } from '../words/sentence';
import { instanceAt, pageLink } from './direct';
import { here } from './endpoint';
import { ILink, IListener } from './link';
import { SliderView } from './slider-view';
import { IModel, KernelLink } from './through-kernel';
import { translation } from './translation';
import { RequestQueue } from './request-queue';

/** Moments of a share that are kept: only the last second is shown. */
const KEPT = 60;
/** The usual most seconds between two samples; a longer pause is a gap. */
const INTERVAL = 2.5;

/** Milliseconds between two looks at the clock: times are shown in minutes. */
const CLOCK = 30_000;

speak();

/** Show `model` in `el`; returns how to end. */
function render({ model, el }: { model: IModel; el: HTMLElement }): () => void {
  const trans = translation(model.get('_words'));
  const shares = new ShareHistory(KEPT);
  let link: ILink | null = null;
  let leave: () => void = () => undefined;
  let view: IView | null = null;
  let trouble = '';
  let ended = false;

  const requests = new RequestQueue(async milli => link?.request(milli), draw);
  const slider = new SliderView(trans, {
    commit: milli => void requests.make(milli),
    retry: () => link?.retry()
  });
  el.append(slider.root);

  function draw(): void {
    const instead = trouble ? saved() : trans.__('Looking for the server…');
    const far = link instanceof KernelLink;
    const { pending, error } = requests;
    slider.show({ view, pending, trouble, error, instead, shares, far });
  }

  /** The state saved with the notebook. */
  function saved(): string {
    const [attached, limit] = ['attached', 'limit'].map(name => Number(model.get(name)) * 1000);
    return limit > 0
      ? trans.__('Last known: %1 of %2 attached', formatGpus(attached), gpus(limit, trans))
      : '';
  }

  const listener: IListener = {
    view: next => {
      view = next;
      link?.samples(
        listener,
        next.gpus.some(gpu => gpu.milli < 1000)
      );
      draw();
    },
    sample: next => {
      shares.push(next, INTERVAL);
      draw();
    },
    trouble: words => {
      trouble = words;
      draw();
    }
  };

  function connect(next: ILink): void {
    leave();
    view = null;
    trouble = '';
    link = next;
    leave = next.join(listener);
    draw();
  }

  const where = here();
  let known = '';
  /** Connect again when the kernel finds its server, or another one. */
  async function choose(): Promise<void> {
    const told = model.get('_instance');
    const its = typeof told === 'string' ? told : '';
    if (link && (!its || its === known)) {
      return;
    }
    const own = where && its && (await instanceAt(where)) === its ? where : null;
    if (ended || (link && its === known)) {
      return;
    }
    known = its;
    if (own) {
      connect(pageLink(own, trans));
    } else if (!(link instanceof KernelLink)) {
      connect(new KernelLink(model, trans));
    }
  }

  const clock = setInterval(() => {
    if (view?.gpus.some(gpu => gpu.idleSince !== null)) {
      draw();
    }
  }, CLOCK);
  const again = () => void choose();
  model.on('change:_instance', again);
  draw();
  void choose();
  return () => {
    ended = true;
    clearInterval(clock);
    model.off('change:_instance', again);
    leave();
    slider.root.remove();
  };
}

export default { render };
