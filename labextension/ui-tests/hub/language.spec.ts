import { expect, LimitsPage, logIn, test } from './fixtures';

test('the page has words of the installed language pack, else our own', async ({ browser }) => {
  const german = new LimitsPage(await logIn(browser, 'root', { locale: 'de-CH' }));
  await german.open();
  await expect(german.page.getByRole('columnheader', { name: 'Zugesichert' })).toBeVisible();
  await expect(german.page.getByRole('columnheader', { name: 'Wartet auf' })).toBeVisible();
  await expect(german.page.locator('#gpu-limits')).toHaveAttribute('lang', 'de-DE');
  expect(german.errors).toEqual([]);
});

test('so have the page without scripts and the sentences of the service', async ({ browser }) => {
  const german = new LimitsPage(await logIn(browser, 'root', { locale: 'de-CH' }));
  await german.open();
  const sent = await (await german.page.reload())!.text();
  expect(sent).toContain('<html lang="de-DE">');
  expect(sent).toContain('Zugesichert');
  expect(sent).toContain('Benutzer');
  await german.page.getByRole('button', { name: 'Warum hat ann dieses Limit?' }).click();
  await expect(german.page.getByText('ann darf 3 GPUs haben, gesetzt für ann von')).toBeVisible();
  expect(german.errors).toEqual([]);
});

test('a browser that likes English best has English', async ({ as }) => {
  const root = await as('root');
  await expect(root.page.getByRole('columnheader', { name: 'Guaranteed' })).toBeVisible();
  await expect(root.page.locator('#gpu-limits')).toHaveAttribute('lang', 'en');
});
