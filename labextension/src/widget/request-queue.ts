/**
 * Requests, sent one at a time: while one is under way a newer one waits, and replaces one that waited before. So the
 * server gets them in order, and a late answer never overwrites a newer request.
 */
export class RequestQueue {
  /** The request that is not answered yet; null: none. */
  pending: number | null = null;
  /** The refusal of the last request. */
  error = '';
  private busy = false;
  private newest = 0;

  /** `changed` is called when `pending` or `error` changes. */
  constructor(
    private readonly send: (milli: number) => Promise<void>,
    private readonly changed: () => void
  ) {}

  async make(milli: number): Promise<void> {
    const mine = ++this.newest;
    this.pending = milli;
    this.error = '';
    this.changed();
    if (this.busy) {
      return;
    }
    this.busy = true;
    let sent = mine - 1;
    while (sent !== this.newest) {
      sent = this.newest;
      try {
        await this.send(this.pending);
      } catch (error) {
        if (sent === this.newest) {
          this.error = error instanceof Error ? error.message : String(error);
        }
      }
    }
    this.busy = false;
    this.pending = null;
    this.changed();
  }
}
