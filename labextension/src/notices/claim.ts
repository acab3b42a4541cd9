/** Claims, by which only one of several tabs does something: the first that claims it. */

/** The part of `localStorage` that is needed. */
export interface IStore {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

const KEY = 'jupyter-gpu:told';
/** Number of claims that are kept. */
const KEPT = 50;

/** Claim `id`; whether this is the first claim. Without storage every claim counts as the first. */
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
    // not allowed, full, or another format: better shown twice than not at all
  }
  return true;
}

/** Milliseconds until every tab certainly sees what another one stored: browsers delay that a little. */
const PASSED_ON = 10_000;

/** {@link claim}, under a lock against other tabs if the browser has locks. */
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
      .catch(() => done(claim(store, id))); // as while the page is being left
  });
}

/**
 * Milliseconds that a tab waits before it claims: none if it has the focus; more if it is hidden, and the more the longer
 * it has been hidden.
 */
export function patience(focused: boolean, hidden: boolean, unseen: number): number {
  return focused ? 0 : hidden ? 400 + 600 * (unseen / (unseen + 60_000)) : 150;
}
