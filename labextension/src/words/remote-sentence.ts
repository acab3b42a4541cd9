/**
 * The line of a view with workers on other nodes, or with a GPU that is lent, parked or used by strangers; loaded with
 * the first of them.
 */
import { GpuState, IGpu, IWorker } from '../api/view';
import { inMemory, isAway, wayBack } from './parked';
import { formatGpus } from './quantity';
import { gpus, join, learn, Sentence, strangerName } from './sentence';

/** Make the lines from now on. */
export function speak(): void {
  learn(RemoteSentence);
}

/** Milli of GPUs; a guest has none. */
const milli = (gpus: readonly Pick<IGpu, 'milli' | 'guest'>[]) =>
  gpus.reduce((total, gpu) => total + (gpu.guest ? 0 : gpu.milli), 0);

const held = (worker: IWorker) => milli(worker.gpus);
const usable = (worker: IWorker) => (worker.stage === 'ready' ? held(worker) : 0);
const missing = (worker: IWorker) => Math.max(0, worker.milli - usable(worker));
const leaving = (worker: IWorker) => Math.max(0, held(worker) - worker.milli);
const broken = (worker: IWorker) => worker.gpus.filter(({ health }) => health);
const isHindered = ({ stage }: IWorker) => stage === 'refused' || stage === 'failed';

const sum = (workers: readonly IWorker[], amount: (worker: IWorker) => number) =>
  workers.reduce((total, worker) => total + amount(worker), 0);

class RemoteSentence extends Sentence {
  protected back(): string[] {
    const { trans } = this;
    const attached = this.inState('attached');
    const guest = attached.filter(gpu => gpu.guest);
    const lent = attached.filter(gpu => gpu.keeps);
    const whose = [
      ...(guest.length ? [trans.__('%1 lent while others rest', this.names(guest))] : []),
      ...(lent.length > 1 ? [trans.__('%1 lent while they rest', this.names(lent))] : []),
      ...(lent.length === 1 ? [trans.__('%1 lent while it rests', this.names(lent))] : [])
    ];
    return [...this.inMemory(), ...this.leaving(), ...whose, ...this.alsoUsed()];
  }

  /** Nothing where what is in memory says it all. */
  protected now(): string {
    const { phase, amounts } = this.view;
    return phase === 'Parked' && !amounts.attached && this.away(false).length ? '' : super.now();
  }

  /** The amount in memory, and how much of it waits for a GPU. */
  private inMemory(): string[] {
    const { trans, view } = this;
    const [parked, returning] = [this.away(false), this.away(true)];
    const waits = returning.length && view.phase === 'Waiting';
    const said = waits ? [trans.__('then %1', wayBack(returning, trans))] : [];
    if (!parked.length) {
      return said;
    }
    const text = inMemory(parked, Date.now() / 1000, trans);
    const some = view.amounts.attached || view.phase !== 'Parked';
    return [
      ...said,
      some ? trans.__('%1 parked: %2', this.names(parked), text) : trans.__('parked: %1', text)
    ];
  }

  protected memory(line: string): string {
    const { trans, view } = this;
    const needed = milli(this.away(true));
    if (!needed) {
      return super.memory(line);
    }
    const more = this.more(needed, view.amounts.allocated);
    return trans.__('%1 when you ask for that', more);
  }

  protected parked(): number {
    return milli(this.away(false));
  }

  protected inState(state: GpuState): readonly IGpu[] {
    return super.inState(state).filter(gpu => !isAway(gpu));
  }

  private away(returning: boolean): readonly IGpu[] {
    return this.view.gpus.filter(gpu => isAway(gpu) && !!gpu.returning === returning);
  }

  protected broken(): [string, number] {
    const [own, count] = super.broken();
    const away = this.view.workers.filter(worker => broken(worker).length);
    const said = away.map(worker => this.on([worker], () => milli(broken(worker))));
    const names = said.length ? join([...(count ? [own] : []), ...said], this.trans) : own;
    return [names, count + away.flatMap(broken).length];
  }

  private leaving(): string[] {
    const away = this.view.workers.filter(leaving);
    if (!away.length) {
      return super.back();
    }
    const own = this.inState('draining');
    return [
      ...(own.length ? [this.givingBack(own)] : []),
      this.trans.__('giving back %1…', this.on(away, leaving))
    ];
  }

  protected attaching(): string {
    const { trans } = this;
    const owed = this.view.workers.filter(worker => missing(worker) && !isHindered(worker));
    const starting = owed.filter(({ stage }) => stage !== 'ready');
    const own = this.inState('attaching');
    const ready = owed.filter(({ stage }) => stage === 'ready');
    const attached = [
      ...(own.length ? [this.names(own)] : []),
      ...ready.map(worker => this.on([worker], missing))
    ];
    const returning = this.away(true);
    const back = returning.length
      ? [trans.__('%1: %2', this.names(returning), wayBack(returning, trans))]
      : [];
    if (!starting.length && !back.length) {
      return attached.length ? trans.__('attaching %1…', join(attached, trans)) : super.attaching();
    }
    const nodes = this.nodes(starting);
    const parts = [
      ...(attached.length ? [trans.__('attaching %1', join(attached, trans))] : []),
      ...back,
      ...(starting.length === 1 ? [trans.__('starting a worker on %1', nodes)] : []),
      ...(starting.length > 1 ? [trans.__('starting workers on %1', nodes)] : [])
    ];
    return trans.__('%1…', this.list(parts));
  }

  /** The attached amount, and how much of it is on which node. */
  protected attached(): string {
    const { trans, view } = this;
    const away = view.workers.filter(usable);
    if (!away.length) {
      return super.attached();
    }
    const here = view.amounts.attached - sum(away, usable);
    const places = [
      ...(here ? [trans.__('%1 here', formatGpus(here))] : []),
      ...away.map(worker => trans.__('%1 on %2', formatGpus(usable(worker)), worker.node))
    ];
    return trans.__('%1: %2', super.attached(), places.join(', '));
  }

  protected lost(): [number, string[]] {
    const { trans } = this;
    const workers = this.view.workers.filter(worker => missing(worker) && isHindered(worker));
    if (!workers.length) {
      return super.lost();
    }
    const milli = sum(workers, missing);
    const more = this.more(milli, this.view.amounts.allocated - milli);
    const nodes = this.nodes(workers);
    const when =
      workers.length === 1
        ? trans.__('%1 when the worker on %2 can start', more, nodes)
        : trans.__('%1 when the workers on %2 can start', more, nodes);
    return [milli, [when]];
  }

  private alsoUsed(): string[] {
    const { trans, view } = this;
    const shared = view.gpus.filter(gpu => gpu.strangers.length && gpu.state !== 'draining');
    if (!shared.length || view.phase === 'Releasing') {
      return [];
    }
    const all = shared.flatMap(gpu => gpu.strangers.map(one => strangerName(one, trans)));
    const who = join(this.few([...new Set(all)]), trans);
    const which = this.names(shared);
    return [
      shared.length === 1
        ? trans.__('%1 is also used by %2, which did not get it from jupyter-gpu', which, who)
        : trans.__('%1 are also used by %2, which did not get them from jupyter-gpu', which, who)
    ];
  }

  private nodes(workers: readonly IWorker[]): string {
    return join(
      workers.map(({ node }) => node),
      this.trans
    );
  }

  private on(workers: readonly IWorker[], amount: (worker: IWorker) => number): string {
    const { trans } = this;
    const each = (worker: IWorker) =>
      trans.__('%1 on %2', gpus(amount(worker), trans), worker.node);
    return join(workers.map(each), trans);
  }
}
