import { IEdit, IResult } from '../../src/hub-api/edits';
import { again, conflicts, editOf, editsOf, inverse, summary } from '../../src/hub-model/edits';
import { fromWords } from '../../src/words/translation';
import { ANN, own, row } from './rows';

const trans = fromWords({});

/** The result of an edit of ann's limit. */
function result(more: Partial<IResult>): IResult {
  return {
    subject: ANN,
    result: 'changed',
    from: null,
    to: null,
    version: '8',
    error: null,
    ...more
  };
}

test('an edit is for the version that was seen', () => {
  expect(editOf(row(), { max: '2' })).toEqual({ subject: ANN, set: { max: '2' }, version: '' });
  expect(editOf(row({ own: own({ max: '1' }) }), { max: '2' })?.version).toBe('7');
});

test('the same value is no edit', () => {
  expect(editOf(row({ own: own({ max: '2' }) }), { max: '2' })).toBeNull();
  expect(editOf(row(), { max: null })).toBeNull();
});

test('a limit of which nothing is left is removed, and one that says more is not', () => {
  expect(editOf(row({ own: own({ max: '2' }) }), { max: null })?.set).toBeNull();
  const more = own({ max: '2', weight: 3 });
  expect(editOf(row({ own: more }), { max: null })?.set).toEqual({ max: null });
});

test('a limit is written beside the properties of a group', () => {
  const mirrored = own({ max: '2' }, { mirrored: true, managedBy: 'jupyter-gpu-hub-properties' });
  expect(editOf(row({ own: mirrored }), { max: '2' })).toEqual({
    subject: ANN,
    set: { max: '2' },
    version: ''
  });
});

test('locked rows are left out of a change of many', () => {
  const rows = [
    row(),
    row({ own: own({ max: '1' }, { managedBy: 'Helm' }) }),
    row({ subject: { kind: 'Cap', name: '', hub: '' } })
  ];
  expect(editsOf(rows, { max: '2' }, trans).map(({ subject }) => subject)).toEqual([ANN]);
});

test('undo restores what was there, for the version that was written', () => {
  const written = [
    result({ result: 'created', to: { max: '2' } }),
    result({ from: { max: '1' }, to: { max: '2', guaranteed: '1' } }),
    result({ result: 'removed', from: { max: '1' }, version: '' }),
    result({ result: 'unchanged' }),
    result({ result: 'refused' })
  ];
  expect(inverse(written)).toEqual([
    { subject: ANN, set: null, version: '8' },
    { subject: ANN, set: { max: '1', guaranteed: null }, version: '8' },
    { subject: ANN, set: { max: '1' }, version: '' }
  ]);
});

test('a conflict has both values, and is written again for the version of theirs', () => {
  const edit: IEdit = { subject: ANN, set: { max: '9' }, version: '7' };
  const error = {
    reason: 'Conflict',
    message: 'Late.',
    details: { theirs: { max: '5' }, version: '9' }
  };
  const ok = result({});
  const [found] = conflicts([edit, edit], [ok, result({ result: 'refused', error })]);
  expect(found).toEqual({ edit, message: 'Late.', theirs: { max: '5' }, version: '9' });
  expect(again(found)).toEqual({ ...edit, version: '9' });
});

test('what somebody else removed is not removed again', () => {
  const edit: IEdit = { subject: ANN, set: null, version: '7' };
  expect(again({ edit, message: '', theirs: null, version: '' })).toBeNull();
  expect(
    again({ edit: { ...edit, set: { max: '1' } }, message: '', theirs: null, version: '' })
  ).toEqual({
    subject: ANN,
    set: { max: '1' },
    version: ''
  });
});

test('the outcome is one sentence, with what was refused', () => {
  const error = { reason: 'NotPermitted', message: 'Helm keeps this limit.', details: {} };
  expect(summary([result({})], trans)).toBe('Saved.');
  expect(summary([], trans)).toBe('Nothing was changed.');
  expect(summary([result({}), result({}), result({ result: 'refused', error })], trans)).toBe(
    'Saved: 2 limits. Refused for ann: Helm keeps this limit.'
  );
});
