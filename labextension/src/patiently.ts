/** Loading code that is needed later than the page: the server may be away at that moment. */

/** Milliseconds before each further try. */
const PAUSES = [1000, 2000, 4000, 8000];

/** What `load` brings, tried again if it fails; `null` where it failed each time, as after an update of the server. */
export async function patiently<T>(what: string, load: () => Promise<T>): Promise<T | null> {
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
