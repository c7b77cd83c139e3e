// @ts-check
// The configuration: every key with its description, typed inputs, and what a change would do before it is applied.

import { api } from '../client.js'
import { attempt, button, confirm, dialog, fail, say, searchBox } from '../components.js'
import { card, h, put } from '../dom.js'
import { bytes, count, span } from '../format.js'

const POLL_MS = 1000
const UPGRADE_TRIES = 90

const isEqual = (one, other) => JSON.stringify(one) === JSON.stringify(other)

/** A value as text. */
function write(value) {
  if (Array.isArray(value))
    return value.length === 0
      ? '(none)'
      : value.map(one => (typeof one === 'string' ? one || '""' : JSON.stringify(one))).join('\n')
  return value === '' ? '(empty)' : String(value)
}

/** The same amount in a larger unit, as the name of the key says. */
function amount(name, value) {
  if (typeof value !== 'number' || value === 0) return ''
  if (name.endsWith('_s') && !name.endsWith('_per_s') && value >= 60)
    return `= ${span(value)}${value % 60 === 0 ? '' : ' and some'}`
  if (name.endsWith('_bytes') && value >= 1024) return `= ${bytes(value)}`
  return ''
}

/** An input for a key, and a function that returns its value or throws. */
function control(setting, value, changed) {
  const { kind, name, choices, min, max } = setting
  const attributes = { 'aria-label': name, oninput: () => changed() }
  if (kind === 'boolean') {
    const box = h('input', { type: 'checkbox', checked: value, ...attributes })
    return { element: h('label.check', box, h('span', 'on')), value: () => box.checked }
  }
  if (kind === 'choice') {
    const select = h(
      'select',
      attributes,
      choices.map(choice => h('option', { value: choice, selected: choice === value }, choice))
    )
    return { element: select, value: () => select.value }
  }
  if (kind === 'integer') {
    const isText = setting.accepts_auto
    const input = h('input', {
      ...attributes,
      type: isText ? 'text' : 'number',
      inputmode: isText ? undefined : 'numeric',
      min: isText ? undefined : min,
      max: isText ? undefined : max,
      value: String(value)
    })
    const range = `${count(min)} to ${count(max)}${isText ? ', or auto' : ''}`
    return {
      element: h('div', input, h('small.hint', range)),
      value() {
        const text = input.value.trim()
        if (isText && text === 'auto') return text
        if (!/^\d+$/.test(text) || Number(text) < min || Number(text) > max)
          throw new Error(`${name}: expected ${range}.`)
        return Number(text)
      }
    }
  }
  if (kind === 'list' || kind === 'certificates') {
    const isJson = kind === 'certificates'
    const lines = value.map(one => (isJson ? JSON.stringify(one) : one))
    const area = h('textarea', {
      ...attributes,
      rows: Math.min(8, Math.max(2, lines.length + 1)),
      spellcheck: 'false',
      placeholder: isJson ? '{"chain": "chain.pem", "key": "key.pem"}' : ''
    })
    area.value = lines.join('\n')
    return {
      element: h('div', area, h('small.hint', isJson ? 'One JSON object per line' : 'One per line')),
      value() {
        // An empty line may be an entry: keep one that was there.
        const entries = area.value
          .split('\n')
          .map(line => line.trim())
          .filter(line => line !== '' || (!isJson && value.includes('')))
        if (!isJson) return area.value.trim() === '' && !value.includes('') ? [] : entries
        try {
          return entries.map(line => JSON.parse(line))
        } catch {
          throw new Error(`${name}: expected one JSON object per line.`)
        }
      }
    }
  }
  const input = h('input', { ...attributes, value, spellcheck: 'false', autocomplete: 'off' })
  return { element: input, value: () => input.value }
}

/** A table of changes: [name, value now, new value]. */
const diff = rows =>
  h(
    'table.diff',
    h(
      'thead',
      h(
        'tr',
        ['Setting', 'Now', 'New'].map(title => h('th', { scope: 'col' }, title))
      )
    ),
    h(
      'tbody',
      rows.map(([name, old, fresh]) =>
        h('tr', h('td.mono', name), h('td', h('del', write(old))), h('td', h('ins', write(fresh))))
      )
    )
  )

export default async function settings(main, { may, rest, isHere }) {
  const writes = may('config:write')
  // What was edited: the new value by name; null removes what the API has set.
  const edits = new Map()
  const rows = new Map()
  const sections = h('.settings')
  const jump = h('nav.jump', { 'aria-label': 'Sections' })
  const pending = h('.offline.row', { role: 'status', hidden: true })
  const state = h('span', { 'aria-live': 'polite' })
  const apply = h(
    '.apply',
    { role: 'region', 'aria-label': 'Changes', hidden: true },
    state,
    h(
      '.row',
      button('Discard', () => {
        edits.clear()
        load()
      }),
      button('Review and apply …', review, 'primary')
    )
  )
  const nothing = h('p.empty', { hidden: true }, 'No setting matches.')
  let text = ''
  const search = searchBox({
    label: 'Search settings by name and description',
    placeholder: 'Search settings',
    onSearch: found => {
      text = found.toLowerCase()
      filter()
    }
  })
  put(
    main,
    h('.head', h('h1', 'Configuration'), search),
    writes && h('.row.tools', button('Reload files', reload), button('Upgrade …', upgrade)),
    pending,
    h(
      'p.hint',
      'Settings with an input take effect at once, and override the configuration file until they are reset. The others are changed in the file, and take effect with a restart or an upgrade.'
    ),
    jump,
    sections,
    nothing,
    apply
  )

  function mark() {
    const size = edits.size
    apply.hidden = size === 0
    state.textContent = `${size} ${size === 1 ? 'change' : 'changes'}: ${[...edits.keys()].join(', ')}`
    for (const [name, row] of rows) row.classList.toggle('edited', edits.has(name))
  }

  function describe(setting) {
    const { name, value, origin } = setting
    const editable = writes && setting.reloadable
    const input =
      editable &&
      control(setting, value, () => {
        try {
          const fresh = input.value()
          fault.hidden = true
          isEqual(fresh, value) ? edits.delete(name) : edits.set(name, fresh)
        } catch (problem) {
          fault.hidden = false
          fault.textContent = problem.message
          edits.delete(name)
        }
        mark()
      })
    const fault = h('p.fault', { role: 'alert', hidden: true })
    const row = h(
      'article.setting',
      { 'data-words': `${name} ${setting.help}`.toLowerCase() },
      h(
        'div',
        h(
          'h3',
          name,
          origin !== 'default' &&
            h('span.tag', { title: 'Where the value comes from' }, origin === 'api' ? 'set here' : origin),
          !setting.reloadable &&
            h('span.tag', { title: 'A new value takes effect with a restart or an upgrade' }, 'restart'),
          setting.pending !== undefined && h('span.tag.bad', 'waits for a restart')
        ),
        h('p.hint', setting.help)
      ),
      h(
        '.control',
        input ? input.element : h('output', write(value)),
        fault,
        amount(name, value) && h('small.hint', amount(name, value)),
        setting.pending !== undefined && h('small', 'After the restart: ', h('code', write(setting.pending))),
        !isEqual(value, setting.default) && h('small.hint', 'Default: ', h('code', write(setting.default))),
        editable &&
          origin === 'api' &&
          h(
            'div',
            button(
              'Reset to the file',
              () => {
                edits.set(name, null)
                mark()
              },
              'small',
              `Reset ${name}`
            )
          )
      )
    )
    rows.set(name, row)
    return row
  }

  let all = []
  async function load() {
    let config
    try {
      config = await api.get('/config')
    } catch (problem) {
      return fail(problem)
    }
    if (!isHere()) return
    all = config.settings
    rows.clear()
    const isChanged = setting =>
      setting.origin !== 'default' || !isEqual(setting.value, setting.default) || setting.pending !== undefined
    const changed = all.filter(isChanged)
    const section = ([id, title, help, list]) => {
      const element = card('', title, count(list.length), help && h('p.hint', help), list.map(describe))
      element.id = `section-${id}`
      return element
    }
    const named = config.sections
      .map(({ name, help }) => [
        name,
        `[${name}]`,
        help,
        all.filter(setting => setting.section === name && !isChanged(setting))
      ])
      .filter(([, , , list]) => list.length > 0)
    const cards = [
      ...(changed.length > 0 ? [['changed', 'Changed', 'What differs from the defaults.', changed]] : []),
      ...named
    ]
    put(sections, cards.map(section))
    put(
      jump,
      cards.map(([id, title]) =>
        button(title, () => document.getElementById(`section-${id}`).scrollIntoView(), 'small')
      )
    )
    const later = all.filter(setting => setting.pending !== undefined)
    pending.hidden = later.length === 0
    put(
      pending,
      h('span', `Waits for a restart or an upgrade: ${later.map(setting => setting.name).join(', ')}.`),
      writes && button('Upgrade …', upgrade, 'small')
    )
    filter()
    mark()
  }

  function filter() {
    let found = 0
    for (const section of sections.children) {
      let own = 0
      for (const row of section.querySelectorAll('.setting')) {
        row.hidden = !text.split(/\s+/).every(word => row.dataset.words.includes(word))
        if (!row.hidden) own++
      }
      section.hidden = own === 0
      found += own
    }
    jump.hidden = text !== ''
    nothing.hidden = found > 0
  }

  /** Returns a warning if changes would refuse every torrent. */
  async function emptyAllowList(changes, before) {
    const has = name => Boolean(changes[name] ?? before.get(name)?.value)
    const isAllow = ['allow', 'both'].includes(changes['access.mode'])
    if (!isAllow || has('access.allow') || has('access.allow_torrents')) return null
    // Entries of list files are those of other listeners. A token that may not read lists gets no warning.
    const { entries, files, next } = await api.get('/lists/allow?limit=1000').catch(() => ({ entries: [1], files: [] }))
    return (
      entries.length === files.length &&
      !next &&
      h(
        'p.offline.warn',
        'The allow list is empty: every torrent will be refused. Add torrents under Access lists first.'
      )
    )
  }

  async function review() {
    const changes = Object.fromEntries(edits)
    const before = new Map(all.map(setting => [setting.name, setting]))
    // What is wrong with all of them together, before anybody is asked.
    if (!(await attempt(() => api.patch('/config?dry_run=true', changes)))) return
    const warning = await emptyAllowList(changes, before)
    const fresh = (name, value) => value ?? 'as in the file'
    const done = await dialog({
      title: 'Apply these changes?',
      wide: true,
      content: [
        warning,
        diff([...edits].map(([name, value]) => [name, before.get(name).value, fresh(name, value)])),
        h('p.hint', 'They take effect at once, without a restart, and survive one.')
      ],
      action: 'Apply',
      act: () => api.patch('/config', changes)
    })
    if (!done) return
    const back = Object.fromEntries(
      Object.keys(changes).map(name => [name, before.get(name).origin === 'api' ? before.get(name).value : null])
    )
    edits.clear()
    say(`Applied: ${Object.keys(changes).join(', ')}.`, {
      undo: () => api.patch('/config', back).then(load),
      undone: 'The values before are in force again.'
    })
    await load()
  }

  async function reload() {
    await attempt(
      () => api.post('/config/reload'),
      ({ changed, needs_restart: later }) =>
        `Reloaded. ${changed.length > 0 ? `Applied: ${changed.join(', ')}.` : 'No setting changed.'}${later.length > 0 ? ` These wait for a restart or an upgrade: ${later.join(', ')}.` : ''}`
    )
    await load()
  }

  async function upgrade() {
    const go = await confirm({
      title: 'Upgrade to a new process?',
      text: [
        'A new process starts from the program file on the disk, with the configuration as the files are now. It takes over the sockets and the swarms, so that no client notices, and this process ends. If it cannot start, this one continues.',
        'You stay signed in.'
      ],
      action: 'Upgrade',
      kind: 'primary'
    })
    if (!go) return
    const uptime = () =>
      api.get('/status').then(
        status => status.uptime_s,
        () => Infinity
      )
    const begun = Date.now()
    if (!(await attempt(() => api.post('/process/upgrade'), 'The new process is starting.'))) return
    for (let tries = 0; tries < UPGRADE_TRIES && isHere(); tries++) {
      await new Promise(resolve => setTimeout(resolve, POLL_MS))
      // The old process started before.
      if ((await uptime()) * 1000 >= Date.now() - begun) continue
      say('The upgrade is done: a new process serves.')
      return load()
    }
    if (isHere()) fail('This process still serves: the upgrade has failed. The log says why.')
  }

  await load()
  // Where a notice of a new program leads.
  if (rest[0] === 'upgrade' && writes && isHere()) {
    history.replaceState(null, '', '#/settings')
    upgrade()
  }
}
