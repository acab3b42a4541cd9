/**
 * Limits of a hub's users without a person: `node demo_hub.mjs IMAGES [pictures]`, with the hub in the environment.
 *
 * An administrator gives a group four GPUs and one of its members two, in the page of GPU limits. That member's slider
 * ends at two; her running cell never uses more, whoever asks for more, also with hub and page gone. Exit status 0
 * only if all of it is true.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { administrator, end, ownPage, pagePictures, panelPicture, panelPictures, server } from './demo_hub_page.mjs';
import { inBrowser, say, until } from './demo_page.mjs';

const [IMAGES, PICTURES] = process.argv.slice(2);
const { HUB_ADDRESS, HUB_NAMESPACE, HUB_PID, HUB_SERVICE, KUBECTL } = process.env;
const PROMPT = 1000; // milliseconds from a saved limit to the end of the slider
const TRIES = 3; // on a machine that is busy with other things

const kubectl = (...words) => execFileSync(KUBECTL, words, { encoding: 'utf8' });

/** Writes a user's request as an administrator of the cluster does, without a limit in between. */
function request(name, gpus) {
  const words = ['annotate', '--overwrite', '--namespace', HUB_NAMESPACE, 'pod', `jupyter-${name}`];
  kubectl(...words, `jupyter-gpu.io/requested=${gpus}`);
  say(`an administrator of the cluster wrote a request of ${gpus} GPUs into the pod of ${name}`);
}

/** Sets a user's limit in the page; milliseconds until the slider ends there. */
async function timed(root, ann, gpus) {
  const [after, saved] = await Promise.all([end(ann, gpus), root.give('user ann', `${gpus}`)]);
  say(`root gave ann ${gpus} GPUs; her slider ended there ${after - saved} ms after the click`);
  return after - saved;
}

/** Sets the limit to two, and again after another until that is prompt. */
async function giveTwo(root, ann) {
  for (let left = TRIES; left > 0; left -= 1) {
    if ((await timed(root, ann, 2)) <= PROMPT) {
      return;
    }
    await timed(root, ann, 3);
  }
  assert.fail(`The slider never ended at the new limit within ${PROMPT} ms.`);
}

/** Waits for text in the panel. */
const told = ({ panel }, text) => panel.getByText(text).first().waitFor();

/** A limit that is lowered below what is used takes it back, after a notice, while the cell goes on. */
async function lower(root, ann, cell) {
  await root.give('user ann', '3');
  await ann.sees(cell, 3);
  say('the limit was raised to 3, and the request that stood was served without a click');
  await root.row('ann').getByRole('cell', { name: '3 GPUs', exact: true }).first().waitFor(); // the page asks only then
  await root.give('user ann', '2', /1 user will lose 1 GPU/);
  await told(ann, /1 GPU will be taken back/);
  assert.equal(await ann.lights(cell), 3, 'A GPU was taken back without a notice.');
  say(`the limit was lowered to 2; the panel says: ${await ann.panel.locator('.jp-gpu-Note').first().innerText()}`);
  await panelPicture(ann, IMAGES, 'hub-notice');
  await ann.sees(cell, 2);
}

/** Ends hub and page; who asks for more still gets no more. */
async function withoutHub(ann, cell, pid) {
  process.kill(Number(HUB_PID), 'SIGKILL');
  kubectl('scale', ...HUB_SERVICE.split(' '), '--replicas=0');
  for (const path of ['/hub/health', '/services/gpu/']) {
    await until(`${path} is gone`, async () => (await fetch(HUB_ADDRESS + path)).status >= 500);
  }
  say('the hub was killed, and the page of limits is gone');
  request('ann', 4);
  await told(ann, /2 of 4/);
  assert.equal(await ann.lights(cell), 2, 'The limit went with the hub.');
  await ann.interrupt(cell);
  const refused = await ann.ask(`
import json, os
try:
    gpu.resize(3)
except Exception as error:
    print(json.dumps([type(error).__name__, str(error), len(gpu.devices), os.getpid(), answer]))`);
  assert.deepEqual([refused[0], ...refused.slice(2)], ['LimitExceeded', 2, pid, 42]);
  say(`the notebook's code asked for 3, and was refused: ${refused[1]}`);
}

await inBrowser(IMAGES, async (_, session) => {
  const [root, ann] = await Promise.all([administrator(session), server(session, 'ann', IMAGES)]);
  const { cell, pid } = await ann.watchDevices();
  await root.give('group ml', '4');
  await root
    .row('ml')
    .getByText(/2 members/)
    .waitFor();
  await told(ann, /Your limit is 4 GPUs, set for group ml by root/);
  say('root gave group ml 4 GPUs, which the panel of ann, a member, says');
  await giveTwo(root, ann);
  await told(ann, /Your limit is 2 GPUs, set for you by root/);
  await ann.drag(2);
  await ann.sees(cell, 2);
  if (PICTURES) {
    await panelPictures(IMAGES, ann);
  }
  request('ann', 3);
  await told(ann, /2 of 3/);
  assert.equal(await ann.lights(cell), 2, 'A request that kubectl wrote got more than the limit.');
  await lower(root, ann, cell);
  const bob = await ownPage(session, 'bob');
  await bob
    .getByText(/4 GPUs, set for group ml by root/)
    .first()
    .waitFor();
  say('bob, who has no limit of his own, reads in his page that group ml has 4');
  if (PICTURES) {
    await pagePictures(IMAGES, root, ann, await server(session, 'bob', IMAGES));
  }
  await withoutHub(ann, cell, pid);
  say('Limits held for every kind of request; GPUs above them were given back after a notice, and no process ended.');
});
