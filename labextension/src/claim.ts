/** One of several tabs does what all of them could do: the first that claims it. */

/** The part of `localStorage` that is needed. */
export interface IStore {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

const KEY = 'jupyter-gpu:told';
/** Claims remembered. */
const KEPT = 50;

/** Whether nobody claimed `id` before, and now this one has. Where nothing can be stored, everybody has. */
export function claim(store: IStore, id: string): boolean {
  try {
    const text = store.getItem(KEY);
    const told: unknown = text ? JSON.parse(text) : [];
    const known = Array.isArray(told) ? told.filter(one => typeof one === 'string') : [];
    if (known.includes(id)) {
      return false;
    }
    store.setItem(KEY, JSON.stringify([...known.slice(1 - KEPT), id]));
  } catch {
    // not allowed, full, or not ours: better told twice than not at all
  }
  return true;
}

/** Milliseconds until every tab surely sees what another one stored: browsers pass it on a little later. */
const PASSED_ON = 10_000;

/** {@link claim}, and no other tab at the same time where the browser has locks. */
export function claimAlone(
  id: string,
  store: IStore = localStorage,
  { locks }: { readonly locks?: Pick<LockManager, 'request'> } = navigator
): Promise<boolean> {
  if (!locks) {
    return Promise.resolve(claim(store, id));
  }
  return new Promise(done => {
    const answer = async (lock: object | null) => {
      done(lock !== null && claim(store, id));
      if (lock) {
        await new Promise(end => setTimeout(end, PASSED_ON));
      }
    };
    locks
      .request(`${KEY} ${id}`, { ifAvailable: true }, answer)
      .catch(() => done(claim(store, id))); // as in a page that is being left
  });
}

/**
 * Milliseconds that a tab waits before it claims: none if it has the focus; more if it is hidden, and the more the longer
 * it was not looked at.
 */
export function patience(focused: boolean, hidden: boolean, unseen: number): number {
  return focused ? 0 : hidden ? 400 + 600 * (unseen / (unseen + 60_000)) : 150;
}
