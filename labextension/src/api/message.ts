/** The messages of the stream, with a strict parser. */
import { fields, listOf, number, text } from './check';
import { ISample, parseSample } from './sample';
import { IView, parseView } from './view';

/** A message of the stream. */
export type Message =
  | { readonly type: 'view'; readonly view: IView }
  | { readonly type: 'history'; readonly interval: number; readonly points: readonly ISample[] }
  | { readonly type: 'sample'; readonly sample: ISample }
  | { readonly type: 'error'; readonly reason: string; readonly message: string };

/** The stream's message in `data`; `null` for a type that this version does not know. Throws a `FieldError`. */
export function parseMessage(data: unknown): Message | null {
  const body = fields(data, 'message');
  const type = body.get('type', text(32));
  switch (type) {
    case 'view':
      return { type, view: body.get('view', parseView) };
    case 'history':
      return {
        type,
        interval: body.get('interval', number(0.01, 3600)),
        points: body.get('points', listOf(parseSample, 100_000))
      };
    case 'sample':
      return { type, sample: body.get('sample', parseSample) };
    case 'error':
      return {
        type,
        reason: body.get('reason', text(64)),
        message: body.get('message', text(4096))
      };
    default:
      return null;
  }
}
