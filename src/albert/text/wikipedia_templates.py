"""Templates, file links and language variants of Wikipedia, in the words of many languages.

A template within a sentence shows text: a number with its unit, a foreign word, a date. The common ones are known here
by their names; others leave a gap, and the sentence is not used (see `albert.text.wikipedia_reader`). The text is close
to what a browser shows, without the converted value in brackets and without the name of a language.
"""

import re
from collections.abc import Callable, Mapping, Sequence

Arguments = Mapping[str, str]
"""The arguments of a template as text, by their names; those without a name are "1", "2", ..."""
Rule = Callable[[Sequence[str], Arguments], str | None]
"""Returns the text of a template from its unnamed arguments and from all of them; None if that is not known."""

# ---- Rules ---------------------------------------------------------------------------------------------------------


def _first(unnamed: Sequence[str], named: Arguments) -> str:
    for name in ("1", "text", "texte", "tekst", "testo", "texto", "quote", "citat", "zitat", "content"):
        if named.get(name):
            return named[name]
    return ""


def _second(unnamed: Sequence[str], named: Arguments) -> str:
    return named.get("2") or named.get("texte") or named.get("text") or ""


def _last(unnamed: Sequence[str], named: Arguments) -> str:
    return unnamed[-1] if unnamed else ""


def _words(unnamed: Sequence[str], named: Arguments) -> str:
    return " ".join(part for part in unnamed if part)


def _date(unnamed: Sequence[str], named: Arguments) -> str | None:
    """The words of a date, {{date|3|mai|1920}}; not known for a month that is written as a number."""
    parts = [part.strip() for part in unnamed if part.strip()]
    return None if sum(part.isdigit() for part in parts) > 2 else " ".join(parts)


def _glued(unnamed: Sequence[str], named: Arguments) -> str:
    return "".join(unnamed)


def _paragraph(unnamed: Sequence[str], named: Arguments) -> str:
    return f"\n{_first(unnamed, named)}\n"


def _in_angles(unnamed: Sequence[str], named: Arguments) -> str:
    return f"⟨{_first(unnamed, named)}⟩"


def _listed(unnamed: Sequence[str], named: Arguments) -> str:
    return ", ".join(part for part in unnamed if part)


def _after(word: str) -> Rule:
    """The first argument after a word or a sign of money."""
    return lambda unnamed, named: word + (unnamed[0] if unnamed else "")


def _shown(text: str) -> Rule:
    return lambda unnamed, named: text


def _link(unnamed: Sequence[str], named: Arguments) -> str:
    """A link to an article of another Wikipedia: its label, else the title here."""
    for name in ("lt", "label", "texte", "tekst", "text", "fr", "d", "1", "trad"):
        if named.get(name):
            return named[name]
    return ""


def _third_or_first(unnamed: Sequence[str], named: Arguments) -> str:
    """As {{le|title|foreign title|label}}."""
    return named.get("3") or named.get("1") or ""


def _label_of_tsl(unnamed: Sequence[str], named: Arguments) -> str:
    """As {{tsl|language|foreign title|title|label}}."""
    return named.get("4") or named.get("3") or named.get("2") or ""


_FRACTION_PARTS = {1: "1/{}", 2: "{}/{}", 3: "{} {}/{}"}


def _fraction(unnamed: Sequence[str], named: Arguments) -> str:
    form = _FRACTION_PARTS.get(len(unnamed))
    return form.format(*unnamed) if form else ""


_UNITS = {
    "sqmi": "sq mi", "sqft": "sq ft", "sqkm": "km²", "km2": "km²", "m2": "m²", "cm2": "cm²", "m3": "m³", "km3": "km³",
    "cuft": "cu ft", "C": "°C", "F": "°F", "degC": "°C", "degF": "°F", "K": "K", "acre": "acres", "kn": "knots",
    "lb": "lb", "ft/s": "ft/s",
    "mph": "mph", "km/h": "km/h", "kmh": "km/h", "m3/s": "m³/s", "/sqkm": "/km²", "/km2": "/km²", "/sqmi": "/sq mi",
}  # fmt: skip
_BETWEEN = {"to", "-", "–", "and", "or", "x", "by", "×", "+/-", "±", "to(-)", "a", "e", "y", "et", "ou", "bis", "até"}
_DASHES = {"-": "–", "x": "×", "by": "×", "+/-": "±"}
_NUMBER = re.compile(r"[-−+]?[\d.,' \u00a0\u202f/+]*\d")


def _measure(unnamed: Sequence[str], named: Arguments) -> str:
    """A number or a range and its first unit: {{convert|3|to|5|km|mi}} is "3 to 5 km"; 5 ft 11 in has two."""
    shown: list[str] = []
    position = 0
    while position < len(unnamed):
        part = unnamed[position].strip()
        if _NUMBER.fullmatch(part):
            shown.append(part)
            follows = unnamed[position + 1].strip() if position + 1 < len(unnamed) else ""
            if follows in _BETWEEN:
                sign = _DASHES.get(follows, follows)
                shown.append(sign)
                position += 2
                continue
            if follows and not _NUMBER.fullmatch(follows):
                shown.append(_UNITS.get(follows, follows))
                position += 2
                if (
                    follows in ("ft", "lb", "st", "mi")
                    and position < len(unnamed)
                    and _NUMBER.fullmatch(unnamed[position])
                ):
                    continue
            break
        break
    return " ".join(shown).replace(" – ", "–")


def _number_and_unit(unnamed: Sequence[str], named: Arguments) -> str:
    """{{unité|12|km}}, {{M|12|u=km}}, {{fmtn|12|km}}: all that is given; an exponent is glued to its unit."""
    parts = [part.strip() for part in unnamed if part.strip()]
    units = [named[name] for name in ("u", "ul", "um", "unité") if named.get(name)]
    parts += units[:1]  # those of a unit and of its link are the same
    text = parts[0] if parts else ""
    for part in parts[1:]:
        text += part if re.fullmatch(r"[-−]?[23]", part) else f" {part}"
    return text


def _value(unnamed: Sequence[str], named: Arguments) -> str:
    """{{val|1.5|0.2|e=6|u=kg}}"""
    text = unnamed[0] if unnamed else ""
    if len(unnamed) > 1 and unnamed[1]:
        text += f"±{unnamed[1]}"
    if named.get("e"):
        text += f"×10^{named['e']}"
    unit = named.get("u") or named.get("ul") or ""
    return f"{text} {_UNITS.get(unit, unit)}".strip()


def _century(unnamed: Sequence[str], named: Arguments) -> str:
    """French {{s|XIX|e}}, {{sp|XVIII|e|XIX|e}}."""
    pairs = ["".join(unnamed[at : at + 2]) for at in range(0, len(unnamed), 2)]
    return " et ".join(pairs) + (" siècles" if len(pairs) > 1 else " siècle")


def _spanish_century(unnamed: Sequence[str], named: Arguments) -> str:
    before_christ = " a. C." if "a" in unnamed[1:2] else ""
    word = "siglo " if "s" in unnamed[2:3] else ""
    return f"{word}{unnamed[0] if unnamed else ''}{before_christ}"


def _ship(prefix: str) -> Rule:
    return lambda unnamed, named: f"{prefix} {unnamed[0]}" if unnamed else prefix


def _reading(unnamed: Sequence[str], named: Arguments) -> str:
    """Japanese {{読み仮名|漢字|かんじ}}."""
    return f"{unnamed[0]}（{unnamed[1]}）" if len(unnamed) > 1 else _first(unnamed, named)


_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def _english_date(unnamed: Sequence[str], named: Arguments) -> str:
    """{{start date|1900|5|6}} and its like."""
    numbers = [part.strip() for part in unnamed]
    if not numbers or not numbers[0].isdigit():
        return _words(unnamed, named)
    month = numbers[1] if len(numbers) > 1 else ""
    name = _MONTHS[int(month) - 1] if month.isdigit() and 1 <= int(month) <= 12 else ""
    day = numbers[2] if len(numbers) > 2 and numbers[2].isdigit() and name else ""
    return " ".join(part for part in (day, name, numbers[0]) if part)


def _as_of(unnamed: Sequence[str], named: Arguments) -> str:
    if named.get("alt"):
        return named["alt"]
    begin = "as" if named.get("lc") else "As"
    return f"{begin} of {_english_date(unnamed, named)}"


def _doubted(unnamed: Sequence[str], named: Arguments) -> str:
    """Japanese {{要出典|範囲=文}} and {{要出典範囲|文}} mark a text; without one they are a note."""
    return named.get("範囲") or named.get("1") or ""


def _hours(unnamed: Sequence[str], named: Arguments) -> str:
    return " h ".join(part for part in unnamed[:2] if part) + (" h" if len(unnamed) == 1 else "")


# ---- Names, in small letters, separated by commas ------------------------------------------------------------------

_NAMES: list[tuple[Rule, str]] = [
    (
        _first,
        """nowrap, nobr, nobreak, nbr, nowr, esd, small, smaller, big, larger, large, abbr, abbrlink,
        abbreviation, tooltip, hover, u, em, strong, strongbad, smallcaps, sc, sc2, smallcaps2, allcaps,
        caps, pc, petit, mono, code, kbd, samp, var, mvar, math, sub, sup, su, sub-, tq, notatypo, sic,
        formatnum, num, nts, ntsh, script/greek, grek, script/hebrew, hebr, script/arabic, unicode,
        polytonic, ruby, ruby-ja, ルビ, 字体, jis2004, cp932フォント, 補助漢字フォント, jis90フォント,
        nihongo, japonais, japonés, giapponese, japanisch, souverain2, souverain, souverain-, flag,
        flagcountry, flagu, flagg, flaga, país, bandeira, bandiera, drapeau2, drapeau, vlag, flagge,
        refnec, quoi?, chem2, ill-wd, число, тильда, ударение, нобр, nobr2, skrót, abr, abrev,
        abréviation, abk, abkürzung, afkorting, förkortning, 縮小, 大きい, 小さい, size, color, farbe,
        couleur, center, align, ang, mongol, midsize, 避免断行, 不换行, число с разделителями,
        citation needed span, référence nécessaire, abréviation discrète, référence souhaitée,
        pertinence détachée, passage non neutre, petites capitales, petite capitale, passage évasif,
        mise en forme, coloured text, dubious span, clarify span, nowrap begin, texte coloré,
        proper name, colour text, color texto, not a typo, as written, font color, fact span,
        versalita, versalitas, versaletes, nf""",
    ),
    (
        _second,
        """lang, langue, språk, taal, idioma, lengua, lingua, język, 言語, 语言, 語言, язык, langx,
        foreign, audio, h:title, font, wikt-lang, wikt, citation étrangère, lien audio""",
    ),
    (
        _last,
        """transl, transliteration, translit, romanization, romanisation, script, style, стиль, шрифт,
        rtl-lang, 旧字体""",
    ),
    (_date, "date, date-, datum, data, fecha, dato, дата, jour, mois, date rép."),
    (_words, "ship, barco, navire, nave, schip, 年月日"),
    (_glued, "chem, linktext, chimie, chem-, радикал, formule chimique"),
    (
        _measure,
        """convert, cvt, conv, convertir, converter, converti, conversione, omregn, omrekenen, umrechnen,
        換算, 单位转换""",
    ),
    (
        _number_and_unit,
        """unité, unité/2, nombre, nb, num, unidad, unidade, unità, fmtn, tmp, unit, units, jednostka,
        enhet, eenheid, numero, número, число и единица""",
    ),
    (_value, "val"),
    (_in_angles, "angbr, angle bracket, angbr ipa, angle, grapheme"),
    (_listed, "hlist, ubl, unbulleted list, flatlist, enum, comma separated entries, cslist"),
    (
        _fraction,
        """frac, fraction, sfrac, fraktion, bruch, breuk, fração, frazione, fracción, ułamek, дробь, 分数""",
    ),
    (
        _link,
        """ill, lien, lien-, link-interwiki, iw, нп, нп1, нп2, нп3, нп4, нп5, нп6, 仮リンク, illm,
        interlanguage link forced, interlanguage link multi, enlace interlingüístico,
        interlanguage link, red link example, не переведено 2, не переведено 3, не переведено 4,
        не переведено 5, link if exists, не переведено""",
    ),
    (
        _third_or_first,
        """le, link-en, link-de, link-fr, link-ja, link-ru, link-es, link-it, link-ko, link-pl, link-pt,
        link-nl, link-sv, lj-, 内部連結, 跨语言链接, link-la, link-uk, link-vi, link-ar,
        internal link helper/en, internal link helper/de, internal link helper/fr,
        internal link helper/ja, internal link helper""",
    ),
    (_label_of_tsl, "tsl, translink, ilh, liw"),
    (
        _paragraph,
        """blockquote, quote, quotation, cquote, bquote, rquote, citaat, citat, cytat, цитата, citazione,
        引用, centered pull quote, citation bloc, citação bloco, cita bloque, quote frame, block quote,
        cita larga""",
    ),
    (_after("c. "), "circa, c., ca, ca."),
    (_after("fl. "), "floruit, fl."),
    (_after("r. "), "reign"),
    (_as_of, "as of, asof"),
    (
        _english_date,
        """dts, start date and age, birth date and age, start date, birth date, death date, film date,
        end date""",
    ),
    (_after("£"), "gbp, £, pound sterling"),
    (_after("$"), "usd, us$, us dollar"),
    (_after("€"), "eur, euro, €"),
    (_after("¥"), "jpy, cny, ¥"),
    (_after("₹"), "inr, indian rupee"),
    (_after("√"), "radic, sqrt"),
    (_ship("HMS"), "hms"),
    (_ship("USS"), "uss"),
    (_ship("SS"), "ss"),
    (_ship("RMS"), "rms"),
    (_reading, "読み仮名, 読み仮名 ruby不使用"),
]
_SYMBOLS = {
    "ndash": "–", "mdash": "—", "en dash": "–", "em dash": "—", "--": "–", "---": "—",
    "mdashb": "—", "spaced mdash": " — ",
    "–": "–", "—": "—", "snd": " – ", "snds": " – ", "spaced ndash": " – ", "spnd": " – ",
    "spaced en dash": " – ", "nbsp": " ", "space": " ", "spaces": " ", "thinsp": " ", "!": "|", "=": "=", "'": "'",
    "'s": "'s", '"': '"', "·": " · ", "•": " • ", "dot": " · ", "pi": "π", "degree": "°", "ell": "…", "...": "…",
    "er": "er", "e": "e", "re": "re", "1er": "1er", "1re": "1re", "ier": "Ier", "ire": "Ire", "av jc": "av. J.-C.",
    "-jc": "av. J.-C.", "apr jc": "apr. J.-C.", "ac": "a. C.", "dc": "d. C.", "bce": "BCE", "ce": "CE", "bc": "BC",
    "ad": "AD", "th": "th", "st": "st", "nd": "nd", "rd": "rd", "°c": "°C", "nnbsp": " ", "insécable": " ",
    "км²": "км²", "m2": "m²", "km2": "km²", "до н. э.": "до н. э.", "zwj": "", "zwnj": "", "shy": "", "-!": "",
}  # fmt: skip


def _table() -> dict[str, Rule]:
    rules: dict[str, Rule] = {name: _shown(text) for name, text in _SYMBOLS.items()}
    for rule, names in _NAMES:
        rules.update(dict.fromkeys((" ".join(name.split()) for name in names.split(",")), rule))
    return rules


RULES = _table()
OF_LANGUAGE: dict[str, dict[str, Rule]] = {
    "de": {"zitat": _first, '"': _first, "höhe": lambda unnamed, named: f"{_first(unnamed, named)} m"},
    "en": {"date": _english_date, "s": _shown("")},
    "es": {"cita": _first, "ac": _shown("a. C."), "siglo": _spanish_century},
    "fr": {
        "citation": _first, "cita": _first, "quote": _first, "«": _first, '"': _first, "souligner": _first,
        "s": _century, "s-": _century, "sp": _century, "sp-": _century, "siècle": _century, "s mini": _century,
        "m.": _after("M. "), "mme": _after("Mme "), "mlle": _after("Mlle "), "mgr": _after("Mgr "),
        "n°": _after("no "), "nº": _after("no "), "numéro": _after("no "), "p.": _after("p. "), "heure": _hours,
    },
    "it": {"m": _number_and_unit, "cn": _first, "bandiera": _shown("")},
    "ja": {"要出典": _doubted, "要出典範囲": _doubted, "quotation": _paragraph, "lang-en-short": _first},
    "ru": {"км": _shown("км"), "год": _first},
    "sv": {"talrad": _first},
}  # fmt: skip
"""Names that mean something else in one language."""
_LANGUAGE_NAME = re.compile(r"lang-[a-z-]+\d?|[a-z]{2,3}S|lang_[a-z]+|ling-[a-z]+|w języku \w+|in lingua \w+")
"""{{lang-ru|text}}, German {{enS|text}}."""
_FRENCH_ORDINAL = re.compile(r"(-?)([IVXLC]+|\d+)(er?|re|ère|ème)?( siècle)?( av\. J\.-C\.)?")
_WITHOUT_TEXT = re.compile(
    r"""(?:cite|citation|cita|citar|citeer|citer|cytuj|cit|internetquelle|literatur|ouvrage|article|lien\ web|harv|sfn
    |efn|refn|ref|r|rp|note|notetag|ref-|reflist|references|referencias|références|przypisy|anchor|ancre|anker|kotwica
    |âncora|ancora|якорь|clear|clr|clearleft|toc|main|see|seealso|further
    |hauptartikel|siehe|article\ détaillé|ap|principal|vedi|artigo|osobny|основная|main\ article|infobox|navbox|portal
    |stub|short|use|ipa-[a-z]+|ipac|respell|pronunciation|api|api-|afi|mfa|уточнить|нет\ аи
    |источник|cn|fact|source|when|who
    |which|whom|by|clarify|vague|dubious|better|failed|verify|page|citation\ needed|citation\ nécessaire|quand|qui
    |lequel|lesquels|où|précision|pas\ clair|cita\ requerida|demostrar|cuándo|quién|bron|feit|källa|källa\ behövs
    |senza\ fonte|chiarire|carece\ de\ fontes|quem|quando|potrzebny\ przypis|fakt|要出典|要検証|誰|いつ
    |来源请求|需要来源|fact-|原創研究|belege|belege\ fehlen|defaultsort|sortierung|displaytitle
    |seitenname|bibleref|authority|normdaten
    |commons|commonscat|webarchive|dead\ link|toter\ link|lien\ brisé|isbn|issn|doi|oclc|zitat\ ohne|nat|efn-ua|efn-lr
    |sfnp|sfnm|harvnb|harvtxt|harvp|r\d*|\#tag:ref|bd|zh|jpn|audio-ipa|listen|ouvir|escuchar|écouter|ec|ref\ label
    |note\ label|xref|fn|fnb|cref|nota|notas|примечания|comment|hidden|pp|прим|сн|sp|mapit|osm|geo|mh|orphan
    |unreferenced)
    (?:[\ /|:-].*)?""",
    re.VERBOSE,
)
"""Sources, notes, pronunciations, boxes: they show nothing within a sentence that is read aloud."""


def template_text(name: str, unnamed: Sequence[str], named: Arguments, language: str) -> str | None:
    """Return what a template shows within a sentence: "" for sources and the like; None if the template is unknown."""
    name = " ".join(name.replace("_", " ").split())
    if ":" in name and not name.startswith("#"):
        function, _, argument = name.partition(":")
        if function.strip().lower() in ("formatnum", "fmtnum", "lc", "uc", "lcfirst", "ucfirst", "nowrap"):
            return argument.strip()
        if function.strip().lower() in _TEMPLATE_NAMESPACES:
            name = argument.strip()
    exact = name[:1].lower() + name[1:]
    for rules in (OF_LANGUAGE.get(language, {}), RULES):
        rule = rules.get(exact) or rules.get(exact.lower())
        if rule is not None:
            return rule(unnamed, named)
    if _LANGUAGE_NAME.fullmatch(exact):
        return _first(unnamed, named)
    if language == "fr":
        ordinal = _FRENCH_ORDINAL.fullmatch(name)
        if ordinal is not None:
            before = " av. J.-C." if ordinal[1] or ordinal[5] else ""
            return f"{ordinal[2]}{ordinal[3] or ''}{ordinal[4] or ''}{before}"
    is_country = re.fullmatch("[A-Z]{3}", name) is not None  # {{JPN}}: its flag and its name
    return "" if _WITHOUT_TEXT.fullmatch(exact.lower()) and not is_country else None


_TEMPLATE_NAMESPACES = frozenset(
    [
        "template",
        "vorlage",
        "modèle",
        "plantilla",
        "sjabloon",
        "szablon",
        "predefinição",
        "шаблон",
        "模板",
        "mall",
        "テンプレート",
        "subst",
        "safesubst",
    ]
)

# ---- Links to files and categories ---------------------------------------------------------------------------------

_PREFIXES = """
    file image media category datei bild medium kategorie fichier catégorie archivo imagen medio categoría
    immagine categoria bestand afbeelding categorie plik grafika kategoria ficheiro arquivo imagem
    multimédia файл изображение медиа категория 文件 檔案 档案 图像 圖像 图片 圖片 媒体 媒體文件 分类 分類
    ファイル 画像 メディア カテゴリ fil kategori soubor obrázek fájl kép kategória tiedosto kuva luokka
    billede bilde dosya resim зображення категорія ملف صورة تصنيف پرونده تصویر رده קובץ תמונה קטגוריה 파일
    그림 분류 hình imagine fișier αρχείο εικόνα κατηγορία fitxer imatge berkas gambar картинка dosiero
    dosiere fitxategi irudi चित्र श्रेणी datoteka slika датотека слика kategorija súbor obrázok ไฟล์ ภาพ
    หมวดหมู่ চিত্র বিষয়শ্রেণী படிமம் பகுப்பு attēls vaizdas pilt kategooria mynd flokkur delwedd íomhá
    լpatker պատկեր კატეგორია ფაილი
"""
FILES_AND_CATEGORIES = frozenset(_PREFIXES.split())
"""Prefixes of links to files and categories, with the older names that are not listed in a dump."""
_FILE_ENDING = re.compile(
    r":.*\.(?:jpe?g|png|gif|svg|tiff?|webp|og[gva]|webm|mp[34]|wav|flac|pdf|djvu|midi?|stl|xcf)\s*$", re.IGNORECASE
)
_IMAGE_WORD = re.compile(
    r"""\s*(?:\d+\s*(?:x\s*\d+\s*)?(?:px|пкс|像素|ピクセル)|x\d+px|upright(?:\s*=?\s*[\d.]+)?|hochkant(?:=[\d.]+)?|thumb
    |thumbnail|thumb(?:nail)?=.*|frame|framed|frameless|border|mini|miniatur|miniatura|miniaturadeimagen|vignette|mini
    |tumma?nagel|minatyr|miniatyr|мини|миниатюра|缩略图|縮圖|有框|无框|サムネイル|フレーム|rechts|links|droite|gauche
    |derecha|izquierda|destra|sinistra|prawo|lewo|direita|esquerda|справа|слева|右|左|höger|vänster|centre|center
    |zentriert|centré|centro|centrum|gerahmt|rahmenlos|enmarcado|marco|sinmarco|riquadrato|alt=.*)\s*""",
    re.VERBOSE | re.IGNORECASE,
)


def is_file_or_category(title: str, label: str | None, namespaces: frozenset[str] | set[str]) -> bool:
    """Return whether a link shows a file, or puts the article into a category.

    Args:
        namespaces: lower-cased prefixes beside those known here.
    """
    prefix, colon, _ = title.partition(":")
    if not colon or not prefix.strip():
        return False
    word = prefix.strip().lower()
    if word in FILES_AND_CATEGORIES or word in namespaces:
        return True
    if _FILE_ENDING.search(title):
        return True
    return label is not None and "|" in label and any(map(_IMAGE_WORD.fullmatch, label.split("|")[:-1]))


# ---- -{zh-hans:甲; zh-hant:乙}- --------------------------------------------------------------------------------------

_VARIANT = re.compile(r"-\{([^{}]*)\}-")
_VARIANT_LANGUAGES = frozenset(["zh", "sr", "sh", "gan", "iu", "kk", "ku", "shi", "tg", "uz", "crh", "wuu", "zgh"])
_VARIANT_NAME = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")
_FIRST_CHOICES = ("zh-hans", "zh-cn", "zh", "zh-sg", "zh-my", "sr-ec", "sr-cyrl")


def choose_variants(markup: str, language: str) -> str:
    """Replace -{...}- by one variant: simplified Chinese, Serbian in Cyrillic letters, else the first one."""
    if language not in _VARIANT_LANGUAGES or "-{" not in markup:
        return markup
    for _ in range(3):  # nested ones
        markup, count = _VARIANT.subn(_one_variant, markup)
        if not count:
            break
    return markup


def _one_variant(match: re.Match[str]) -> str:
    flags, bar, content = match[1].rpartition("|")
    flags = flags.strip()
    if bar and flags in ("T", "H", "-", "D", "N"):
        return ""
    variants: dict[str, str] = {}
    for rule in content.split(";"):
        name, colon, text = rule.rpartition("=>")[2].partition(":")
        if colon and _VARIANT_NAME.fullmatch(name.strip().lower()):
            variants[name.strip().lower()] = text.strip()
    if not variants:
        return content
    for name in _FIRST_CHOICES:
        if name in variants:
            return variants[name]
    return next(iter(variants.values()))
