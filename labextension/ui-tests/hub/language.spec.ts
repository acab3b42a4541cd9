import { expect, LimitsPage, logIn, test } from './fixtures';

test('the page has the words of the installed language pack', async ({ browser }) => {
  const german = new LimitsPage(await logIn(browser, 'root', { locale: 'de-CH' }));
  await german.open();
  await expect(german.page.getByRole('columnheader', { name: 'Garantiert' })).toBeVisible();
  await expect(german.page.getByRole('columnheader', { name: 'Waiting' })).toBeVisible();
  await expect(german.page.locator('#gpu-limits')).toHaveAttribute('lang', 'de-DE');
  expect(german.errors).toEqual([]);
});

test('a browser that likes English best has English', async ({ as }) => {
  const root = await as('root');
  await expect(root.page.getByRole('columnheader', { name: 'Guaranteed' })).toBeVisible();
  await expect(root.page.locator('#gpu-limits')).toHaveAttribute('lang', 'en');
});
