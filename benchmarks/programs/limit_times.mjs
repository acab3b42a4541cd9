/**
 * Changes a user's limit many times in the page of GPU limits: `node limit_times.mjs RESULT COUNT NOTICES`, with the hub of
 * the demo in the environment. RESULT gets JSON with milliseconds: from Enter or the click on Save until the answer is in
 * the page, the slider of the user's notebook ends there, and, for NOTICES changes that take GPUs, until the panel and a
 * running cell's kernel have the notice.
 *
 * All clocks are that of this machine: its processes, its pods and its browser.
 */
import { writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { administrator, end, server } from '../../scripts/lib/demo_hub_page.mjs';
import { inBrowser, say } from '../../scripts/lib/demo_page.mjs';

const [, , RESULT, COUNT, NOTICES] = process.argv;
const IMAGES = dirname(RESULT); // pictures of pages, if something fails
const FEW = 2;
const MORE = 3;
const WARM = 2; // changes that are not counted

/** A cell that runs, and prints each new notice of its kernel with the time. */
const CELL = `
import json, time
from jupyter_gpu.kernel.cuda.guard import guard
print(json.dumps([time.time() * 1000, "begins"]), flush=True)
while True:
    found = guard().new_notice()
    if found:
        print(json.dumps([time.time() * 1000, found]), flush=True)
    time.sleep(0.002)
`;

/** Starts the cell; calls of the result wait for a line with `text` in it, and return its time. */
async function runningCell({ notebook }) {
  const lines = await notebook.evaluateHandle((panel, code) => {
    const found = [];
    const future = panel.sessionContext.session.kernel.requestExecute({
      code,
      store_history: false
    });
    future.onIOPub = message => {
      if (message.header.msg_type === 'stream') {
        found.push(
          ...message.content.text
            .trim()
            .split('\n')
            .map(line => JSON.parse(line))
        );
      }
    };
    return found;
  }, CELL);
  const next = text =>
    lines.evaluate(
      (found, wanted) =>
        new Promise(tell => {
          const looking = setInterval(() => {
            const line = found.find(each => each[1].includes(wanted));
            if (line) {
              clearInterval(looking);
              found.length = 0;
              tell(line[0]);
            }
          }, 5);
        }),
      text
    );
  await next('begins');
  return next;
}

/** When the panel shows `text`. */
function shown({ panel }, text) {
  return panel.evaluate(
    (element, wanted) =>
      new Promise(found => {
        const observer = new MutationObserver(look);
        function look() {
          if (element.textContent.includes(wanted)) {
            observer.disconnect();
            found(Date.now());
          }
        }
        observer.observe(element, { subtree: true, childList: true, characterData: true });
        look();
      }),
    text
  );
}

/** Sets the limit once the row shows the last change; when it was sent, and when the page had the answer. */
async function give(root, before, gpus, question) {
  const { page } = root;
  await page.getByRole('button', { name: `Change the limit of user ann, now ${before} GPUs`, exact: true }).waitFor();
  await page.waitForTimeout(200 + 300 * Math.random()); // not always at the same moment of what happens periodically
  await page.evaluate(() => performance.clearResourceTimings());
  const sent = await root.give('user ann', `${gpus}`, question);
  const answered = () =>
    page.evaluate(() => {
      const [last] = performance
        .getEntriesByType('resource')
        .filter(each => each.name.endsWith('/limits/bulk'))
        .slice(-1);
      return performance.timeOrigin + last.responseEnd;
    });
  return { sent, answered };
}

await inBrowser(IMAGES, async (_, session) => {
  const [root, ann] = await Promise.all([administrator(session), server(session, 'ann', IMAGES)]);
  const times = { answered: [], end: [], panel: [], kernel: [] };
  await root.give('user ann', `${MORE}`);
  await end(ann, MORE);
  say(`${COUNT} changes of the limit between ${FEW} and ${MORE} GPUs`);
  let before = MORE;
  for (let turn = -WARM; turn < Number(COUNT); turn += 1) {
    const gpus = FEW + MORE - before;
    const [moved, { sent, answered }] = await Promise.all([end(ann, gpus), give(root, before, gpus)]);
    if (turn >= 0) {
      times.end.push(moved - sent);
      times.answered.push((await answered()) - sent);
    }
    before = gpus;
  }
  if (before !== MORE) {
    await Promise.all([end(ann, MORE), give(root, before, MORE)]);
  }
  await ann.ask(`from jupyter_gpu import gpu; print(gpu.resize(${MORE}).attached)`);
  const notice = await runningCell(ann);
  await root
    .row('ann')
    .getByRole('cell', { name: `${MORE} GPUs`, exact: true })
    .first()
    .waitFor(); // in use
  say(`${NOTICES} times below what is used`);
  for (let turn = -WARM; turn < Number(NOTICES); turn += 1) {
    const text = 'will be taken back';
    const [panel, kernel, { sent }] = await Promise.all([
      shown(ann, text),
      notice(text),
      give(root, MORE, FEW, /1 user will lose 1 GPU/)
    ]);
    if (turn >= 0) {
      times.panel.push(panel - sent);
      times.kernel.push(kernel - sent);
    }
    await give(root, FEW, MORE);
    await ann.panel.getByText(text).first().waitFor({ state: 'detached' });
  }
  writeFileSync(RESULT, JSON.stringify(times));
  say('the times are written');
});
