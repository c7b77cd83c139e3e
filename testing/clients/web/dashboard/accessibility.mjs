// axe-core on every page, in both themes: contrast, names, roles, landmarks.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']

/** Returns what axe-core finds on the present page, in a few words each. */
export async function findings (page) {
  if (!await page.value('Boolean(globalThis.axe)')) await page.value(`${axe}; 0`)
  // Transitions are over, so that colours are what they will be.
  await page.value('Promise.all(document.getAnimations().map(one => one.finished.catch(() => {}))).then(() => 0)')
  return page.value(`axe.run(document, { runOnly: ${JSON.stringify(RULES)}, resultTypes: ['violations'] }).then(({ violations }) => violations.map(
    ({ id, help, nodes }) => id + ': ' + help + ': ' + nodes.slice(0, 3).map(node => node.html.slice(0, 160) + ' ' + (node.any[0]?.message ?? '')).join(' | ')))`)
}

export default async function ({ page, visit, pages, hash }) {
  const all = [...await pages(), [`torrent/${hash}`]]
  for (const theme of ['light', 'dark']) {
    await page.colours(theme)
    for (const [path, title] of all) {
      await visit(path, title)
      assert.deepEqual(await findings(page), [], `${path}, ${theme}`)
    }
  }
  await page.colours('light')
}
