import React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';
import { Api, RefusedError } from '../../src/hub-api/call';
import { IMe } from '../../src/hub-api/limits';
import { Context } from '../../src/hub-common/context';
import { Problem } from '../../src/hub-common/messages';
import { OwnLimit } from '../../src/hub-page/own';
import { Row } from '../../src/hub-page/row';
import { fromWords } from '../../src/words/translation';
import { own, row } from '../hub-model/rows';

const trans = fromWords({});
const api = new Api({ base: '/', xsrf: () => '', logIn: () => undefined });
const SOURCE = { kind: 'Group', name: 'ml', by: 'root', at: 0, part: null, unreadable: false };

/** The text of a part of the page, as first rendered. */
function render(part: React.ReactNode, machine = false): string {
  return renderToStaticMarkup(
    <Context.Provider value={{ api, trans, counts: {}, machine }}>{part}</Context.Provider>
  );
}

/** One row, as an administrator sees it. */
function shown(of: ReturnType<typeof row>): string {
  const nothing = () => undefined;
  return render(
    <Row
      row={of}
      mayEdit
      chosen={false}
      onChoose={nothing}
      onExplain={nothing}
      onOpen={nothing}
      onSave={nothing}
    />
  );
}

test('a row has the limit with its source, and a button to change it', () => {
  const text = shown(row({ limit: { value: '2', source: SOURCE }, used: 1500 }));
  expect(text).toContain('set for group ml by root on 1 January');
  expect(text).toContain('aria-label="Change the limit of user ann, now 2 GPUs"');
  expect(text).toContain('1.5 GPUs');
});

test('a locked row says why, and has no button', () => {
  const text = shown(row({ own: own({ max: '1' }, { managedBy: 'Helm' }) }));
  expect(text).toContain('Helm keeps this limit');
  expect(text).not.toContain('Change the limit');
  expect(text).toContain('disabled');
});

test('a name is text, whatever it looks like', () => {
  const name = '<img src=x onerror=alert(1)>';
  const text = shown(row({ subject: { kind: 'User', name, hub: '' }, known: false }));
  expect(text).not.toContain('<img');
  expect(text).toContain('&lt;img');
  expect(text).toContain('the hub knows no such user');
});

test('people see who granted their limit, their place in line, and the history', () => {
  const me: IMe = {
    name: 'ann',
    limit: { value: '2', source: SOURCE },
    guaranteed: { value: '0', source: { ...SOURCE, kind: 'Unset' } },
    used: 1000,
    waiting: 1000,
    idle: 500,
    inForce: { value: '1', source: { ...SOURCE, part: 'hours' } },
    until: null,
    giveBackAt: null,
    pods: [
      {
        namespace: 'n',
        name: 'p',
        server: '',
        used: 1000,
        draining: 500,
        idle: 0,
        waiting: 1000,
        position: 12
      }
    ],
    hours: {},
    hub: 'jhub',
    machine: false,
    mayRead: false,
    mayEdit: false,
    problem: null
  };
  const text = render(<OwnLimit me={me} />);
  for (const part of [
    '2 GPUs, set for group ml by root on 1 January',
    '1 GPU, the hours for group ml, set by root on 1 January',
    'idle, as no program uses them: 0.5 GPU',
    'about 12',
    'of which 0.5 GPU are being given back',
    '0 GPU-hours in the last 35 days'
  ]) {
    expect(text).toContain(part);
  }
  expect(text).not.toContain('Guaranteed');
  const pods = [{ ...me.pods[0], server: null }];
  expect(render(<OwnLimit me={{ ...me, pods }} />)).toContain('pod p in n');
  expect(render(<OwnLimit me={{ ...me, pods }} />, true)).toContain('server p');
});

test('a busy service is told of, and that the page goes on to try', () => {
  const told = (status: number) =>
    render(<Problem error={new RefusedError(status, 'x', 'Busy.')} trans={trans} />);
  expect(told(503)).toContain('Busy. Trying again…');
  expect(told(429)).toContain('Busy. Trying again…');
  expect(told(404)).not.toContain('Trying');
});
