/** Loading of code after the page: the server may be away at that moment. */

/** Milliseconds before each retry. */
const PAUSES = [1000, 2000, 4000, 8000];

/** The result of `load`, retried if it fails; `null` if it always failed, as after an update of the server. */
export async function loadWithRetries<T>(what: string, load: () => Promise<T>): Promise<T | null> {
  for (const pause of [...PAUSES, null]) {
    try {
      return await load();
    } catch (reason) {
      console.warn(`jupyter-gpu: ${what} could not be loaded:`, reason);
      if (pause !== null) {
        await new Promise(again => setTimeout(again, pause));
      }
    }
  }
  return null;
}
